# A collector on this machine, whose clock is right: that of the guest is set back by the test.
cat >collector.toml <<END
listen = "tcp://127.0.0.1:*"
store = "sqlite:$PWD/beside.db"
auth = "munge"
control_listen = "tcp://127.0.0.1:0"
END
rm -f beside.db*
beside "$programs/polymeter-collector" --config "$PWD/collector.toml"
for _ in $(seq 100); do
    port=$(sed -n 's/.*listening for users at .*tcp:..127.0.0.1:\([0-9]*\).*/\1/p' beside.log)
    [ -z "$port" ] || break
    sleep 0.1
done
[ -n "$port" ] || { echo "the collector beside the guest does not start:"; cat beside.log; exit 1; }
mkdir -p root/etc/polymeter
echo "collector = \"tcp://10.0.2.2:$port\"" >root/etc/polymeter/client.toml
