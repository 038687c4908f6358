# Rights that neither daemon needs. Those that one of them needs are granted in its own module.
{
  NoNewPrivileges = true;
  LockPersonality = true;
  MemoryDenyWriteExecute = true;
  PrivateTmp = true;
  ProtectClock = true;
  # Both read cgroups at most; who makes them is the scheduler.
  ProtectControlGroups = true;
  ProtectHome = true;
  ProtectHostname = true;
  ProtectKernelLogs = true;
  ProtectKernelModules = true;
  ProtectKernelTunables = true;
  ProtectSystem = "strict";
  RemoveIPC = true;
  # ZeroMQ lists the interfaces over netlink when it binds to one by name.
  RestrictAddressFamilies = [
    "AF_UNIX"
    "AF_INET"
    "AF_INET6"
    "AF_NETLINK"
  ];
  RestrictNamespaces = true;
  RestrictSUIDSGID = true;
  SystemCallArchitectures = "native";
  SystemCallErrorNumber = "EPERM";
  # A wrong configuration does not get better by another start.
  Restart = "on-failure";
  RestartSec = 5;
  RestartPreventExitStatus = 2;
}
