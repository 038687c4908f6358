# Restrictions for both daemons. The exceptions of each daemon are in its own module.
{
  NoNewPrivileges = true;
  LockPersonality = true;
  MemoryDenyWriteExecute = true;
  PrivateTmp = true;
  ProtectClock = true;
  # Both only read cgroups; the scheduler creates them.
  ProtectControlGroups = true;
  ProtectHome = true;
  ProtectHostname = true;
  ProtectKernelLogs = true;
  ProtectKernelModules = true;
  ProtectKernelTunables = true;
  ProtectSystem = "strict";
  RemoveIPC = true;
  # ZeroMQ lists the network interfaces over netlink when it binds to one by name.
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
  # An invalid configuration (exit status 2) is not retried.
  Restart = "on-failure";
  RestartSec = 5;
  RestartPreventExitStatus = 2;
}
