//! Controllers with resources of old schemas, of new ones, and of both.

use serde_json::{Value, json};

use super::super::connection::DeviceError;
use super::{Asked, Reply, Server, write_secret};

const JSON: &str = "application/json; charset=utf-8";

const ALL: [&str; 4] = ["power", "temperature", "fan", "energy"];

fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

/// A controller with one chassis.
fn controller(chassis: &Value, resources: &[(&str, Value)]) -> Server {
    let server = Server::start();
    let members = json!({"Members": [link("/redfish/v1/Chassis/1")]});
    server.answer("/redfish/v1/", JSON, json!({"RedfishVersion": "1.6.0"}).to_string());
    server.answer("/redfish/v1/Chassis", JSON, members.to_string());
    server.answer("/redfish/v1/Chassis/1", JSON, chassis.to_string());
    for (path, resource) in resources {
        server.answer(&format!("/redfish/v1/Chassis/1/{path}"), JSON, resource.to_string());
    }
    server
}

fn old_power(watts: u32) -> Value {
    json!({"PowerControl": [{"MemberId": "0", "Name": "System Power", "PowerConsumedWatts": watts}]})
}

fn thermal() -> Value {
    json!({
        "Temperatures": [
            {"MemberId": "0", "Name": "CPU1", "ReadingCelsius": 41, "Status": {"State": "Enabled"}},
            {"MemberId": "1", "Name": "CPU2", "ReadingCelsius": null, "Status": {"State": "Absent"}},
        ],
        "Fans": [{"MemberId": "0", "Name": "Fan 1", "Reading": 2100, "ReadingUnits": "RPM"}],
    })
}

#[test]
fn a_controller_of_old_schemas() {
    let chassis = json!({
        "Id": "1", "Power": link("/redfish/v1/Chassis/1/Power"), "Thermal": link("/redfish/v1/Chassis/1/Thermal"),
    });
    let server = controller(&chassis, &[("Power", old_power(344)), ("Thermal", thermal())]);
    let mut device = server.device("/redfish/v1", &ALL);
    let found = device.find().unwrap();
    assert_eq!(
        Asked::labels(&found),
        ["chassis=1,sensor=System Power", "chassis=1,sensor=CPU1", "chassis=1,sensor=Fan 1"]
    );
    assert_eq!(device.read(&found).unwrap(), [Some(344.0), Some(41.0), Some(2100.0)]);
    let before = server.heads.lock().unwrap().len();
    assert_eq!(device.read(&found[..1]).unwrap(), [Some(344.0)]);
    assert_eq!(server.heads.lock().unwrap().len(), before + 1, "only the wanted resource is asked for");
}

#[test]
fn a_controller_of_new_schemas() {
    let chassis = json!({
        "Id": "1",
        "EnvironmentMetrics": link("/redfish/v1/Chassis/1/EnvironmentMetrics"),
        "Sensors": link("/redfish/v1/Chassis/1/Sensors"),
    });
    let sensor = |name: &str, reading: f64, units: &str| json!({"Id": name, "Name": name, "Reading": reading, "ReadingUnits": units});
    let metrics = json!({"PowerWatts": {"Reading": 374.5}, "EnergykWh": {"Reading": 2}});
    let sensors = json!({"Members": [
        link("/redfish/v1/Chassis/1/Sensors/cpu"),
        link("/redfish/v1/Chassis/1/Sensors/fan"),
        link("http://elsewhere/redfish/v1/x"),
        link("/etc/passwd"),
    ]});
    let server = controller(
        &chassis,
        &[
            ("EnvironmentMetrics", metrics),
            ("Sensors", sensors),
            ("Sensors/cpu", sensor("cpu", 44.5, "Cel")),
            ("Sensors/fan", sensor("fan", 5000.0, "RPM")),
        ],
    );
    let mut device = server.device("/redfish/v1/", &ALL);
    let found = device.find().unwrap();
    let expected = ["chassis=1,sensor=", "chassis=1,sensor=cpu", "chassis=1,sensor=fan", "chassis=1,sensor="];
    assert_eq!(Asked::labels(&found), expected);
    assert_eq!(device.read(&found).unwrap(), [Some(374.5), Some(44.5), Some(5000.0), Some(2.0)]);
    assert_eq!(found[3].factor, 3.6e6, "joules of kilowatt-hours");
    let mut offers = device.connection.offers().unwrap();
    let names: Vec<String> = offers.drain(..).map(|metric| metric.address).collect();
    assert_eq!(names, ["power", "energy", "temperature", "fan"]);
}

#[test]
fn sensors_that_the_controller_lists_need_one_request() {
    let chassis = json!({"Id": "1", "Sensors": link("/redfish/v1/Chassis/1/Sensors")});
    let members = json!({"Members": [
        {"Id": "cpu", "Name": "CPU", "Reading": 44, "ReadingUnits": "Cel"},
        {"Id": "gpu", "Name": "GPU", "Reading": 60, "ReadingUnits": "Cel"},
    ]});
    let server = controller(&chassis, &[("Sensors?$expand=.($levels=1)", members)]);
    let features = json!({"ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": true}}});
    server.answer("/redfish/v1/", JSON, features.to_string());
    let mut device = server.device("/redfish/v1", &["temperature"]);
    let found = device.find().unwrap();
    let before = server.heads.lock().unwrap().len();
    assert_eq!(device.read(&found).unwrap(), [Some(44.0), Some(60.0)]);
    assert_eq!(server.heads.lock().unwrap().len(), before + 1);
}

#[test]
fn a_controller_of_both_has_each_quantity_once() {
    let chassis = json!({
        "Id": "1",
        "Power": link("/redfish/v1/Chassis/1/Power"),
        "EnvironmentMetrics": link("/redfish/v1/Chassis/1/EnvironmentMetrics"),
    });
    let metrics = json!({"PowerWatts": {"Reading": 345}, "TemperatureCelsius": {"Reading": 24}});
    let server = controller(&chassis, &[("Power", old_power(344)), ("EnvironmentMetrics", metrics)]);
    let mut device = server.device("/redfish/v1", &["power", "temperature"]);
    let found = device.find().unwrap();
    assert_eq!(device.read(&found).unwrap(), [Some(344.0), Some(24.0)]);
}

#[test]
fn what_is_missing_is_absent() {
    let chassis = json!({
        "Id": "1", "Power": link("/redfish/v1/Chassis/1/Power"), "Thermal": link("/redfish/v1/Chassis/1/Thermal"),
    });
    let server = controller(&chassis, &[("Power", old_power(344)), ("Thermal", thermal())]);
    let mut device = server.device("/redfish/v1", &["power", "temperature"]);
    let found = device.find().unwrap();
    let path = "/redfish/v1/Chassis/1/Power";
    server.answer(
        path,
        JSON,
        json!({"PowerControl": [{"MemberId": "0", "PowerConsumedWatts": null}]}).to_string(),
    );
    assert_eq!(device.read(&found).unwrap(), [None, Some(41.0)]);
    server.replies.lock().unwrap().retain(|(known, _)| known != path);
    assert_eq!(device.read(&found).unwrap(), [None, Some(41.0)], "it was taken out");
    server.answer(path, JSON, "[".repeat(100_000));
    assert!(matches!(device.read(&found), Err(DeviceError::Malformed(_))));
    server.answer(path, JSON, format!("\"{}\"", " ".repeat(1024 * 1024)));
    assert!(matches!(device.read(&found), Err(DeviceError::Http(_))), "longer than 1 MiB");
}

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

/// A controller with sessions, and one that asks it as a user.
fn with_sessions(directory: &std::path::Path) -> (Server, Asked) {
    let chassis = json!({"Id": "1", "Power": link("/redfish/v1/Chassis/1/Power")});
    let server = controller(&chassis, &[("Power", old_power(344))]);
    let root = json!({"RedfishVersion": "1.6.0", "Links": {"Sessions": link(SESSIONS)}});
    server.answer("/redfish/v1/", JSON, root.to_string());
    log_in(&server, "t0ken");
    let secret = directory.join("secret");
    write_secret(&secret, "user = \"monitor\"\npassword = \"hunter2\"\n");
    let mut settings = server.settings("/redfish/v1", &["power"]);
    settings.credentials = Some(secret);
    let device = Asked::new(&settings);
    (server, device)
}

fn log_in(server: &Server, token: &str) {
    let head = format!(
        "HTTP/1.1 201 Created\r\nx-auth-token: {token}\r\nlocation: https://elsewhere{SESSIONS}/7\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    server.answer_raw(&format!("POST {SESSIONS}"), Reply::Bytes(head.into_bytes()));
}

fn status(status: u16) -> Reply {
    Reply::Bytes(format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n").into_bytes())
}

fn count(server: &Server, text: &str) -> usize {
    server.heads.lock().unwrap().iter().filter(|head| head.contains(text)).count()
}

#[test]
fn a_user_logs_in_once_and_out_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let (server, mut device) = with_sessions(directory.path());
    let found = device.find().unwrap();
    for _ in 0..5 {
        assert_eq!(device.read(&found).unwrap(), [Some(344.0)]);
    }
    assert_eq!((count(&server, "post "), count(&server, "hunter2")), (1, 1), "the password goes out once");
    assert_eq!(count(&server, "authorization: "), 0);
    let requests = server.heads.lock().unwrap().len();
    assert_eq!(count(&server, "x-auth-token: t0ken"), requests - 2, "all but the root and the login");
    // The controller has ended the session.
    log_in(&server, "t1ken");
    let path = "/redfish/v1/Chassis/1/Power";
    server.answer_raw(path, status(401));
    assert!(matches!(device.read(&found), Err(DeviceError::Refused(_))));
    assert_eq!(count(&server, "post "), 2, "one new login for one request");
    assert_eq!(count(&server, "x-auth-token: t1ken"), 1);
    server.answer(path, JSON, old_power(345).to_string());
    assert_eq!(device.read(&found).unwrap(), [Some(345.0)]);
    device.connection.end();
    assert_eq!(count(&server, &format!("delete {SESSIONS}/7 ").to_lowercase()), 1);
    assert!(!format!("{device:?}").contains("hunter2") && !format!("{device:?}").contains("t1ken"));
}

#[test]
fn without_sessions_the_password_goes_with_each_request() {
    let directory = tempfile::tempdir().unwrap();
    for reply in [status(404), status(405), status(503), status(201)] {
        let (server, mut device) = with_sessions(directory.path());
        server.answer_raw(&format!("POST {SESSIONS}"), reply);
        let found = device.find().unwrap();
        assert_eq!(device.read(&found).unwrap(), [Some(344.0)]);
        let requests = server.heads.lock().unwrap().len();
        assert_eq!(count(&server, "authorization: basic "), requests - 2);
        device.connection.end();
        assert_eq!(count(&server, "delete "), 0);
    }
    let (server, mut device) = with_sessions(directory.path());
    server.answer_raw(&format!("POST {SESSIONS}"), status(401));
    assert!(matches!(device.find(), Err(DeviceError::Refused(_))));
    assert_eq!(count(&server, "authorization: "), 0, "a wrong password is sent once");
    let other = Server::start();
    let (server, mut device) = with_sessions(directory.path());
    let moved = format!("HTTP/1.1 307 x\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n", other.address);
    server.answer_raw("/redfish/v1/", Reply::Bytes(moved.into_bytes()));
    assert!(matches!(device.find(), Err(DeviceError::Redirected)));
    assert!(other.heads.lock().unwrap().is_empty() && count(&server, "authorization") == 0);
}
