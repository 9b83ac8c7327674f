//! Every line that a process can write holds against `docs/control.schema.json`, and says nothing that stands not in there.

use serde::Serialize;
use serde_json::Value;

use manypath_stack::ids::SubflowId;
use manypath_stack::pm::controllers::{LocalView, SubflowView, View};
use manypath_tcp::time::Duration;

use crate::news::{self, samples::every_kind};
use crate::report::{
    ClassReport, ConnReport, DeviceReport, EndedReport, LimitReport, LocalAddressReport,
    PathReport, ProcessReport, QuotaReport, RemoteAddressReport, SubflowReport,
};
use crate::view::ViewReport;
use crate::wire::{Answer, DecisionReport, EventReport, Reply};

fn schema() -> Value {
    let text = include_str!("../../../docs/control.schema.json");
    serde_json::from_str(text).expect("the schema is JSON")
}

/// The words of JSON Schema that the file uses. A property that is not described counts as an error, which is more than the
/// standard says.
fn check(root: &Value, rule: &Value, value: &Value, at: &str) -> Result<(), String> {
    let rules = rule.as_object().ok_or(format!("{at}: no rule"))?;
    for (word, rule) in rules {
        let holds = match word.as_str() {
            "title" | "description" => true,
            "$ref" => {
                let pointer = rule.as_str().and_then(|r| r.strip_prefix('#'));
                let found = pointer.and_then(|pointer| root.pointer(pointer));
                check(root, found.ok_or(format!("{at}: {rule}"))?, value, at)?;
                true
            }
            "oneOf" => {
                let all = rule.as_array().into_iter().flatten();
                let found: Vec<_> = all.map(|one| check(root, one, value, at)).collect();
                if found.iter().filter(|one| one.is_ok()).count() != 1 {
                    return Err(format!("{at}: {found:?}"));
                }
                true
            }
            "const" => rule == value,
            "enum" => rule.as_array().is_some_and(|all| all.contains(value)),
            "minimum" => value.as_f64() >= rule.as_f64(),
            "type" => match rule {
                Value::Array(all) => all.iter().any(|name| is_of(name, value)),
                name => is_of(name, value),
            },
            "items" => {
                for (place, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{at}/{place}"))?;
                }
                true
            }
            "properties" => {
                for (name, property) in value.as_object().into_iter().flatten() {
                    let rule = rule.get(name);
                    let rule = rule.ok_or(format!("{at}: {name} is not described"))?;
                    check(root, rule, property, &format!("{at}/{name}"))?;
                }
                true
            }
            // No object here has both words.
            "additionalProperties" => {
                for (name, property) in value.as_object().into_iter().flatten() {
                    check(root, rule, property, &format!("{at}/{name}"))?;
                }
                true
            }
            "required" => {
                let mut all = rule.as_array().into_iter().flatten();
                all.all(|name| name.as_str().is_some_and(|name| value.get(name).is_some()))
            }
            other => return Err(format!("{at}: nobody here understands {other}")),
        };
        if !holds {
            return Err(format!("{at}: {word} {rule} does not hold for {value}"));
        }
    }
    Ok(())
}

fn is_of(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object() && value.as_object().is_some(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => false,
    }
}

/// What a line is has to be described, to the last word.
fn assert_described(what: &str, line: &impl Serialize) {
    let root = schema();
    let rule = &root["$defs"][what];
    // As it is written, so that words for numbers and addresses are what readers see.
    let line = serde_json::to_string(line).expect("JSON");
    let line = serde_json::from_str(&line).expect("JSON");
    if let Err(error) = check(&root, rule, &line, what) {
        panic!("{error}\nin {line}");
    }
}

fn end() -> Option<std::net::SocketAddr> {
    Some(std::net::SocketAddr::from(([10, 0, 0, 1], 5_000)))
}

/// A connection that has some of everything.
fn full() -> ConnReport {
    ConnReport {
        fallback: Some("why".into()),
        closed: Some("why".into()),
        local: end(),
        remote: end(),
        token: Some("0a".into()),
        held_up_by: Some(1),
        local_addresses: vec![LocalAddressReport {
            address: end().map(|end| end.ip()),
            ..LocalAddressReport::default()
        }],
        remote_addresses: vec![RemoteAddressReport {
            address: end(),
            ..RemoteAddressReport::default()
        }],
        subflows: vec![
            SubflowReport::default(),
            SubflowReport {
                local: end(),
                remote: end(),
                srtt_us: Some(1),
                min_rtt_us: Some(1),
                ssthresh: Some(1),
                pacing_rate: Some(1),
                ..SubflowReport::default()
            },
        ],
        ended: vec![
            EndedReport::default(),
            EndedReport {
                local: end(),
                remote: end(),
                ..EndedReport::default()
            },
        ],
        ..ConnReport::default()
    }
}

/// What controllers see of one.
fn view() -> View {
    let subflow = SubflowView {
        id: SubflowId(1),
        local: end().expect("an end"),
        remote: end().expect("an end"),
        established: true,
        backup: false,
        srtt: Some(Duration::from_millis(1)),
        rto: Duration::from_millis(200),
        backoffs: 0,
        stale: false,
        steady: true,
        pacing_rate: 1,
        acked: 1,
        retransmitted: 1,
    };
    let addr = subflow.local.ip();
    View {
        subflows: vec![
            subflow,
            SubflowView {
                srtt: None,
                pacing_rate: u64::MAX,
                ..subflow
            },
        ],
        locals: vec![LocalView {
            addr,
            backup: false,
        }],
        remotes: vec![subflow.remote],
        ..View::default()
    }
}

/// An event of each name and cause, as bare as it comes.
fn every_event() -> Vec<EventReport> {
    let of = |kind| {
        let event = manypath_stack::api::Event {
            at: manypath_tcp::time::Instant::from_secs(1),
            conn: "3.1".parse().ok(),
            kind,
        };
        news::report(&event, 1)
    };
    let mut all: Vec<_> = every_kind().into_iter().filter_map(of).collect();
    let blank = EventReport::default;
    all.push(EventReport {
        event: "decision".to_owned(),
        decision: Some("create".to_owned()),
        reason: Some("why".to_owned()),
        ..blank()
    });
    all.push(EventReport {
        event: "lost".to_owned(),
        samples: Some(1),
        events: Some(1),
        ..blank()
    });
    for event in ["limit", "limit_held"] {
        all.push(EventReport {
            event: event.to_owned(),
            limit: Some(Box::default()),
            ..blank()
        });
    }
    for event in ["quota_spent", "quota_reset"] {
        all.push(EventReport {
            event: event.to_owned(),
            quota: Some(Box::default()),
            ..blank()
        });
    }
    all.push(EventReport {
        event: "path_priority".to_owned(),
        path: Some(Box::default()),
        ..blank()
    });
    all.push(EventReport {
        event: "sample".to_owned(),
        sample: Some(Box::new(full())),
        ..blank()
    });
    all
}

#[test]
fn every_event_is_described() {
    let root = schema();
    let names = root["$defs"]["event"]["properties"]["event"]["enum"].as_array();
    for name in names.expect("names") {
        let told = every_event()
            .iter()
            .any(|e| Some(e.event.as_str()) == name.as_str());
        assert!(told, "{name} never happens");
    }
    for report in every_event() {
        assert_described("event", &report);
        let sample = Some(Box::new(full()));
        let view = Some(Box::new(ViewReport::from(&view())));
        assert_described(
            "event",
            &EventReport {
                sample,
                view,
                ..report
            },
        );
    }
}

/// A reply of each kind, with and without what may be left out.
fn every_reply() -> Vec<Reply> {
    let (hello, mut all) = (
        Reply::Hello {
            version: crate::wire::VERSION,
            pid: 1,
            title: String::new(),
        },
        Vec::new(),
    );
    // A new kind must not be forgotten here.
    match &hello {
        Reply::Hello { .. }
        | Reply::Process { .. }
        | Reply::Connection { .. }
        | Reply::Decisions { .. }
        | Reply::Done { .. }
        | Reply::Error { .. } => all.push(hello),
    }
    all.push(Reply::Process {
        process: Box::new(ProcessReport {
            paths: vec![
                PathReport::default(),
                PathReport {
                    address: end().map(|end| end.ip()),
                    missing: Some("why".into()),
                    priority: Some("never".into()),
                    reason: Some("its quota".into()),
                    ..PathReport::default()
                },
            ],
            devices: vec![DeviceReport {
                counters: [("sent".to_owned(), 1)].into(),
                ..DeviceReport::default()
            }],
            counters: [("packets_in".to_owned(), 1)].into(),
            limits: vec![LimitReport::default()],
            classes: vec![ClassReport::default()],
            quotas: vec![QuotaReport::default()],
            connections: vec![full(), full()],
            ..ProcessReport::default()
        }),
    });
    all.push(Reply::Connection {
        connection: Box::new(full()),
    });
    all.push(Reply::Decisions {
        decisions: vec![DecisionReport::default()],
    });
    for (subflow, address_id) in [(None, None), (Some(1), None), (None, Some(1))] {
        all.push(Reply::done(subflow, address_id));
    }
    all.push(Reply::Done {
        subflow: None,
        address_id: None,
        owned_by_others: Some(1),
    });
    let codes = ["not_found", "owned", "no_path", "no_port", "limit"];
    let more = ["state", "invalid", "denied", "config"];
    all.extend(
        codes
            .iter()
            .chain(&more)
            .map(|code| Reply::error(code, "why")),
    );
    all
}

#[test]
fn every_reply_is_described() {
    for reply in every_reply() {
        for id in [None, Some(1)] {
            let reply = reply.clone();
            assert_described("reply", &Answer { id, reply });
        }
    }
}

#[test]
fn what_is_not_described_is_found() {
    let root = schema();
    let rule = &root["$defs"]["event"];
    let of = |text: &str| {
        check(
            &root,
            rule,
            &serde_json::from_str(text).expect("JSON"),
            "event",
        )
    };
    assert_eq!(of(r#"{"event":"closed","seq":1,"at_us":2}"#), Ok(()));
    for text in [
        r#"{"event":"closed","seq":1}"#,
        r#"{"event":"danced","seq":1,"at_us":2}"#,
        r#"{"event":"closed","seq":"1","at_us":2}"#,
        r#"{"event":"closed","seq":1,"at_us":2,"partner":"3.1"}"#,
        r#"{"event":"closed","seq":1,"at_us":2,"sample":{"subflows":[{"shoes":2}]}}"#,
    ] {
        assert!(of(text).is_err(), "{text}");
    }
}
