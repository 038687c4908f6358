# A test with two virtual machines: an agent on one, a collector with TimescaleDB on the other. A job runs, its periods are
# changed during the run, and the database must have its samples and the changes.
{ modules, polymeter }:

{
  name = "polymeter-cluster";

  nodes = {
    node =
      { ... }:
      {
        imports = [ modules.polymeter-agent ];
        environment.systemPackages = [ polymeter ];
        services.polymeter-agent = {
          enable = true;
          settings = {
            node = "node";
            collector = "tcp://collector:7717";
            jobs = [ "jobs.slice/job-{job}.service" ];
            baseline."cpu.usage" = "1s";
          };
        };
      };

    collector =
      { ... }:
      {
        imports = [ modules.polymeter-collector ];
        services.polymeter-collector = {
          enable = true;
          openFirewall = true;
          database.createLocally = true;
          settings.listen = "tcp://0.0.0.0:7717";
          # Keys are tested in e2e; a virtual machine adds nothing to these tests.
          settings.insecure = true;
        };
      };
  };

  testScript = ''
    def sql(statement):
        command = f"""sudo -u polymeter psql -d polymeter -tA -c "{statement}" """
        return collector.succeed(command).strip()


    start_all()
    collector.wait_for_unit("polymeter-collector.service")
    collector.wait_for_open_port(7717)
    node.wait_for_unit("polymeter-agent.service")

    with subtest("samples go into a hypertable"):
        hypertables = "SELECT count(*) FROM timescaledb_information.hypertables WHERE hypertable_name = 'samples'"
        assert sql(hypertables) == "1"

    with subtest("a job is found, and its periods are changed while it runs"):
        node.succeed(
            "systemd-run --unit=job-42 --slice=jobs.slice sh -c 'while :; do :; done'"
        )
        node.wait_until_succeeds("polymeter jobs | grep -qw 42")
        node.sleep(5)
        node.succeed("polymeter set --job 42 cpu.usage=10ms --for 10s")
        node.sleep(15)
        node.succeed("systemctl stop job-42.service")

    with subtest("the database tells it"):
        collector.wait_until_succeeds(
            "sudo -u polymeter psql -d polymeter -tA "
            "-c \"SELECT ended FROM job WHERE job_id = '42'\" | grep -q ."
        )
        samples = int(
            sql(
                "SELECT count(*) FROM metrics_by_job WHERE job_id = '42' AND metric_id = 'cpu.usage'"
            )
        )
        # 10 s at 10 ms are a thousand; without the change it would be some twenty.
        assert samples > 500, samples
        periods = sql(
            "SELECT string_agg(new_period_us::text, ' ' ORDER BY time) FROM plan_change "
            "WHERE job_id = '42' AND metric = 'cpu.usage' AND new_period_us IS NOT NULL"
        )
        assert periods == "1000000 10000 1000000", periods
        unaccounted = sql(
            "SELECT count(*) FROM ledger WHERE due <> taken + missed + absent"
        )
        assert unaccounted == "0", unaccounted
  '';
}
