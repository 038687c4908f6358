//! Tests of two collectors with one store: each knows at once what the other has stored.

use polymeter_api::Listen;
use polymeter_collector::Collector;
use polymeter_proto::control::Scope;
use polymeter_store::{CollectorRow, ControlTable};

use crate::api_tokens::{create, get, revoke};
use crate::reading::{Fixture, USERS};
use crate::support::{Kind, TestEnvironment, wait_until};

polymeter_test_harness::tests![a_token_of_one_collector_is_valid_at_the_other, collectors_notice_each_other,];

fn a_token_of_one_collector_is_valid_at_the_other() {
    let environment = TestEnvironment::new(Kind::Postgres);
    let first = Fixture::new(&environment);
    let second = Fixture::with(&environment, |config| config.listen = "inproc://second".to_owned());
    let token = create(USERS[0], &first.socket, Scope::Read).unwrap();
    assert_eq!(get(&second.api, &token, "/api/v1/whoami").status, 200, "at once");
    assert_eq!(revoke(USERS[0], &first.socket, &token), Ok(1));
    assert_eq!(get(&first.api, &token, "/api/v1/whoami").status, 401, "at once in the same collector");
    wait_until("the other collector refuses it", || get(&second.api, &token, "/api/v1/whoami").status == 401);
    assert!(matches!(first.collector.api(), Some(Listen::Unix(_))));
    assert!(first.collector.stop().is_ok());
    assert!(second.collector.stop().is_ok());
}

fn collectors_notice_each_other() {
    let environment = TestEnvironment::new(Kind::Postgres);
    let collectors = ["inproc://first", "inproc://second"].map(|listen| {
        let mut config = environment.config();
        config.listen = listen.to_owned();
        Collector::start(&config, &environment.context).unwrap()
    });
    wait_until("both have recorded that they run", || {
        environment.lines("SELECT count(*)::text FROM collector") == ["2"]
    });
    let mut table = ControlTable::open(&environment.url()).unwrap();
    let me =
        CollectorRow { collector_id: "test".to_owned(), host: "host".to_owned(), version: "1".to_owned() };
    assert!(table.beat(&me).unwrap());
    for collector in collectors {
        assert!(collector.stop().is_ok());
    }
    assert!(!table.beat(&me).unwrap(), "they have left");
}
