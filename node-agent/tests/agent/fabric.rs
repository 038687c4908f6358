//! Tests of the sources of networks on a simulated machine: InfiniBand, Omni-Path, Slingshot, Ethernet and
//! LNet.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::machine::{machine, open, threaded};

#[test]
fn ports_of_infiniband_are_sources_of_the_slow_lane() {
    let root = machine("");
    let (opened, unavailable) = open(root.path(), "node.infiniband.*");
    // The adapters lack some of the counters beyond the standard ones.
    assert!(!unavailable.is_empty());
    for unavailable in unavailable {
        let name = unavailable.definition.name();
        assert!(name.starts_with("node.infiniband.hw."), "{unavailable}");
    }
    let ports = threaded(&opened);
    assert_eq!(
        ports.keys().copied().collect::<Vec<_>>(),
        [
            "sys/class/infiniband/*/ports/*",
            "sys/class/infiniband/hfi1_0/ports/1/counters",
            "sys/class/infiniband/mlx5_0/ports/1/counters",
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters",
            "sys/class/infiniband/mlx5_1/hw_counters",
            "sys/class/infiniband/mlx5_1/ports/1/counters",
            "sys/class/infiniband/rdmap0s31/ports/1/hw_counters"
        ]
    );
    let series = &ports["sys/class/infiniband/mlx5_0/ports/1/counters"];
    assert_eq!(series.len(), 21);
    assert!(series.contains("node.infiniband.receive.bytes{device=mlx5_0,port=1}"), "{series:?}");
    assert_eq!(ports["sys/class/infiniband/hfi1_0/ports/1/counters"].len(), 4, "what the device has");
    assert_eq!(ports["sys/class/infiniband/*/ports/*"].len(), 7, "states and rates of all ports");
    assert_eq!(
        ports["sys/class/infiniband/mlx5_1/hw_counters"],
        ["node.infiniband.hw.out_of_buffer{device=mlx5_1}".to_owned()].into()
    );
}

/// Series of each source of adapters, after files were added below `/sys/class/infiniband`.
fn with_files(files: &[(&str, &str)]) -> BTreeMap<String, Vec<String>> {
    let root = machine("");
    for (path, text) in files {
        let path = root.path().join("sys/class/infiniband").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    let (opened, _) = open(root.path(), "node.infiniband.*");
    threaded(&opened)
        .into_iter()
        .map(|(name, series)| {
            let names = series.into_iter().map(|name| name.replace("node.infiniband.", ""));
            (name.replace("sys/class/infiniband/", ""), names.collect())
        })
        .collect()
}

#[test]
fn adapters_of_several_drivers_have_counters_of_their_own() {
    let sources = with_files(&[
        ("hfi1_0/ports/1/hw_counters/lifespan", "10"),
        ("hfi1_0/ports/1/hw_counters/TxWait", "123456"),
        ("hfi1_0/ports/1/hw_counters/TxWaitVL0", "123456"),
        ("hfi1_0/ports/1/hw_counters/TxFlitVL15", "77"),
        ("hfi1_0/ports/1/hw_counters/SwLinkDown,32", "1"),
        ("hfi1_0/ports/1/hw_counters/RcTimeOut", "0"),
        ("hfi1_0/ports/1/hw_counters/SDmaHaltErr", "0"),
        ("irdma0/ports/1/hw_counters/lifespan", "10"),
        ("irdma0/ports/1/hw_counters/ip4InOctets", "18446744073709551615"),
        ("irdma0/ports/1/hw_counters/cnpHandled", "4"),
        ("bnxt_re0/ports/1/hw_counters/to_retransmits", "2"),
        ("bnxt_re0/ports/1/hw_counters/rx_bytes", "99"),
        ("bnxt_re0/ports/1/hw_counters/active_qps", "17"),
        // Linux 6.15 and later.
        ("bnxt_re1/ports/1/hw_counters/local_ack_timeout_err", "2"),
        // irdma before Linux 5.14.
        ("i40iw0/hw_counters/iwInRdmaReads", "5"),
    ]);
    let of = |source: &str| sources.get(source).map(|series| series.join(" "));
    assert_eq!(
        of("hfi1_0/ports/1/hw_counters").unwrap(),
        "hw.link_down{device=hfi1_0,port=1} hw.rc_timeouts{device=hfi1_0,port=1} \
         hw.vl.tx_bytes{device=hfi1_0,port=1,vl=15} hw.vl.tx_wait{device=hfi1_0,port=1,vl=0} \
         transmit.wait{device=hfi1_0,port=1}"
    );
    assert_eq!(
        of("irdma0/ports/1/hw_counters").unwrap(),
        "hw.cnp_handled{device=irdma0,port=1} hw.ip4_in_bytes{device=irdma0,port=1}"
    );
    assert_eq!(
        of("bnxt_re0/ports/1/hw_counters").unwrap(),
        "hw.rx_bytes{device=bnxt_re0,port=1} hw.to_retransmits{device=bnxt_re0,port=1}"
    );
    assert_eq!(
        of("bnxt_re1/ports/1/hw_counters").unwrap(),
        "hw.local_ack_timeout_err{device=bnxt_re1,port=1}"
    );
    assert_eq!(of("i40iw0/hw_counters").unwrap(), "hw.in_rdma_reads{device=i40iw0}");
}

#[test]
fn a_counter_that_a_driver_does_not_have_is_left_out() {
    let root = machine("");
    let counters = root.path().join("sys/class/infiniband/hfi1_0/ports/1/counters");
    for unset in ["symbol_error", "unicast_rcv_packets", "port_xmit_wait", "VL15_dropped"] {
        fs::write(counters.join(unset), "0\n").unwrap();
    }
    let (opened, _) = open(root.path(), "node.infiniband.*");
    let series = &threaded(&opened)["sys/class/infiniband/hfi1_0/ports/1/counters"];
    let names: Vec<&str> = series.iter().map(|series| series.split('{').next().unwrap()).collect();
    assert_eq!(
        names,
        [
            "node.infiniband.link.downed",
            "node.infiniband.receive.bytes",
            "node.infiniband.receive.multicast.packets",
            "node.infiniband.transmit.bytes"
        ]
    );
}

#[test]
fn each_adapter_of_slingshot_is_a_source() {
    let root = machine("");
    let (opened, unavailable) = open(root.path(), "node.slingshot.*");
    assert!(unavailable.iter().all(|unavailable| unavailable.reason == "this node has no such device"));
    let adapters = threaded(&opened);
    assert_eq!(
        adapters["sys/class/cxi/cxi1/device/telemetry"],
        ["node.slingshot.transmit.bytes{device=cxi1}".to_owned()].into()
    );
    let series = &adapters["sys/class/cxi/cxi0/device/telemetry"];
    assert_eq!(series.len(), 10);
    for expected in [
        "node.slingshot.receive.paused{device=cxi0,traffic_class=std}",
        "node.slingshot.transmit.packets{device=cxi0,traffic_class=6}",
        "node.slingshot.match.overflow{device=cxi0,engine=3}",
    ] {
        assert!(series.contains(expected), "{expected} in {series:?}");
    }
}

#[test]
fn one_thread_reads_the_speeds_of_all_interfaces() {
    let root = machine("");
    let (opened, unavailable) = open(root.path(), "node.network.speed");
    assert_eq!(unavailable, []);
    assert_eq!(
        threaded(&opened),
        [("sys/class/net/*", ["node.network.speed{interface=eth0}".to_owned()].into())].into()
    );
}

#[test]
fn the_first_of_two_files_of_lnet_counts() {
    let root = machine("");
    let names = |root: &Path| {
        let (opened, unavailable) = open(root, "node.lnet.*");
        let series = threaded(&opened).into_iter().map(|(name, series)| (name.to_owned(), series.len()));
        (series.collect::<BTreeMap<_, _>>(), unavailable.len())
    };
    assert_eq!(names(root.path()), ([("sys/kernel/debug/lnet".to_owned(), 11)].into(), 0));
    fs::remove_dir_all(root.path().join("sys/kernel/debug/lnet")).unwrap();
    assert_eq!(names(root.path()), ([("proc/sys/lnet".to_owned(), 11)].into(), 0));
    fs::remove_dir_all(root.path().join("proc/sys/lnet")).unwrap();
    assert_eq!(names(root.path()), ([].into(), 11));
}
