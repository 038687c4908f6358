# services.polymeter-collector: the collector, and optionally its database.
{
  config,
  lib,
  pkgs,
  ...
}:

let
  cfg = config.services.polymeter-collector;
  file = import ./file.nix { inherit lib pkgs; };
  program = "${cfg.package}/bin/polymeter-collector";
  # One name for the user, the role and the database, so that PostgreSQL authenticates the collector without a password.
  name = "polymeter";
  local = cfg.database.createLocally;

  port =
    endpoint:
    let
      found = if endpoint == null then null else builtins.match "tcp://.*:([0-9]+)" endpoint;
    in
    lib.optional (found != null) (lib.toInt (lib.head found));
in
{
  options.services.polymeter-collector = {
    enable = lib.mkEnableOption "Polymeter's collector, which stores what agents send";

    inherit (import ./program.nix { inherit lib; } "polymeter-collector") package checkConfig;

    openFirewall = lib.mkOption {
      type = lib.types.bool;
      default = false;
      description = "Open the ports of `settings.listen` and `settings.control_listen`.";
    };

    database = {
      createLocally = lib.mkOption {
        type = lib.types.bool;
        default = false;
        description = "Run a PostgreSQL server with a database for the collector on this machine.";
      };
      timescaledb = lib.mkOption {
        type = lib.types.bool;
        default = true;
        description = ''
          Install TimescaleDB on that server. Its compression has the Timescale License, which nixpkgs counts as unfree:
          `nixpkgs.config.allowUnfreePredicate` must let `timescaledb` in.
        '';
      };
    };

    settings = lib.mkOption {
      type = lib.types.submodule {
        freeformType = file.type;
        options = import ./settings.nix { inherit lib; } "collector";
      };
      default = { };
      example = {
        listen = "tcp://192.0.2.1:7717";
        commit_interval = "500ms";
      };
      description = ''
        The contents of the collector's configuration file. Keys that are left out have the collector's defaults. The file
        is in the Nix store, which every user can read: it must not contain a password. `key`, owned by the user polymeter with
        mode 0400, and files with passwords and tokens are paths outside of it.
      '';
    };
  };

  config = lib.mkIf cfg.enable (
    lib.mkMerge [
      {
        services.polymeter-collector.settings.store = lib.mkDefault (
          if local then
            "host=/run/postgresql dbname=${name} user=${name}"
          else
            "sqlite:/var/lib/polymeter-collector/polymeter.db"
        );

        services.polymeter-collector.settings.unmunge_path = lib.mkIf (cfg.settings.auth == "munge") (
          lib.mkDefault "${pkgs.munge}/bin/unmunge"
        );

        services.polymeter-collector.settings.remote_write.spool =
          lib.mkIf (cfg.settings.remote_write.url != null)
            (lib.mkDefault "/var/lib/polymeter-collector/remote-write");

        services.polymeter-collector.settings.influx.spool =
          lib.mkIf (cfg.settings.influx.url != null)
            (lib.mkDefault "/var/lib/polymeter-collector/influx");

        services.polymeter-collector.settings.otlp.spool = lib.mkIf (cfg.settings.otlp.url != null) (
          lib.mkDefault "/var/lib/polymeter-collector/otlp"
        );

        networking.firewall.allowedTCPPorts = lib.mkIf cfg.openFirewall (
          port cfg.settings.listen ++ port cfg.settings.control_listen
        );

        users.users.${name} = {
          isSystemUser = true;
          group = name;
        };
        users.groups.${name} = { };

        systemd.services.polymeter-collector = {
          description = "Polymeter's collector";
          wantedBy = [ "multi-user.target" ];
          # The addresses in `listen` must be configured first.
          wants = [ "network-online.target" ];
          after = [ "network-online.target" ];
          serviceConfig = import ./hardening.nix // {
            Type = "notify";
            WatchdogSec = "60s";
            ExecStart = "${program} --config ${
              file.make {
                name = "collector.toml";
                inherit (cfg) settings;
                inherit program;
                check = cfg.checkConfig;
                # The check runs without keys, which the collector accepts only with `insecure`, and without the command at the
                # end of a job, which need not exist on the machine that builds.
                keyless =
                  removeAttrs cfg.settings [
                    "key"
                    "authorised_agents"
                    "job_end"
                  ]
                  // {
                    insecure = true;
                  };
              }
            }";
            User = name;
            Group = name;
            StateDirectory = "polymeter-collector";
            WorkingDirectory = "%S/polymeter-collector";
            # Separate from the agent's directory, since systemd assigns each directory to one user.
            RuntimeDirectory = "polymeter-collector";
            # One descriptor per agent.
            LimitNOFILE = 65536;
            CapabilityBoundingSet = "";
            PrivateDevices = true;
            ProcSubset = "pid";
            ProtectProc = "invisible";
            RestrictRealtime = true;
            # `@resources` is allowed: ZeroMQ sets the scheduling policy of its threads, and aborts if that is refused.
            SystemCallFilter = [
              "@system-service"
              "~@privileged"
            ];
          };
        };
      }

      (lib.mkIf local {
        services.postgresql = {
          enable = true;
          ensureDatabases = [ name ];
          ensureUsers = [
            {
              inherit name;
              ensureDBOwnership = true;
            }
          ];
        };
        systemd.services.polymeter-collector = {
          requires = [ "postgresql.target" ];
          after = [ "postgresql.target" ];
        };
      })

      # The collector creates the extension itself: TimescaleDB is a trusted extension, which the owner of a database may
      # create.
      (lib.mkIf (local && cfg.database.timescaledb) {
        services.polymeter-collector.settings.timescaledb = lib.mkDefault "require";
        services.postgresql = {
          extensions = extensions: [ extensions.timescaledb ];
          settings.shared_preload_libraries = [ "timescaledb" ];
        };
      })
    ]
  );
}
