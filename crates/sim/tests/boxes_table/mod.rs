//! Boxes, and what is left of Multipath TCP behind them, at least: at the client's end with one path and with two, then
//! at the server's end with one and with two. `kept`: all of it; `lost`: a subflow less; `fell`: plain TCP.

/// The boxes' tables as in a scenario file, and the four words.
pub(crate) const TABLE: &[(&str, &str)] = &[
    (r#"{kind = "strip"}"#, "fell fell fell fell"),
    (
        r#"{kind = "strip", phases = ["syn"]}"#,
        "fell fell fell fell",
    ),
    (
        r#"{kind = "strip", phases = ["syn-ack"]}"#,
        "fell fell fell fell",
    ),
    (
        r#"{kind = "strip", phases = ["third-ack"]}"#,
        "fell fell fell fell",
    ),
    (
        r#"{kind = "strip", phases = ["data"]}"#,
        "fell fell fell fell",
    ),
    (
        r#"{kind = "strip", phases = ["data"], way = "out"}"#,
        "fell fell fell fell",
    ),
    (
        r#"{kind = "strip", phases = ["data"], way = "in"}"#,
        "fell fell fell fell",
    ),
    (
        r#"{kind = "strip", phases = ["other"]}"#,
        "fell fell fell fell",
    ),
    (
        r#"{kind = "strip", phases = ["other"], way = "in"}"#,
        "fell fell fell fell",
    ),
    (r#"{kind = "strip", way = "out"}"#, "fell fell fell fell"),
    (r#"{kind = "strip", way = "in"}"#, "fell fell fell fell"),
    (
        r#"{kind = "strip", phases = ["third-ack", "data"], cut = true}"#,
        "fell fell fell fell",
    ),
    (
        r#"{kind = "strip", after-bytes = "100KB", phases = ["other"]}"#,
        "fell kept fell kept",
    ),
    (
        r#"{kind = "strip", after-time = "100ms", phases = ["other"]}"#,
        "fell kept fell kept",
    ),
    (r#"{kind = "strip", subtypes = [1]}"#, "kept kept kept kept"),
    (
        r#"{kind = "drop-unknown", phases = ["third-ack"]}"#,
        "kept kept kept kept",
    ),
    (r#"{kind = "nat"}"#, "kept kept kept kept"),
    (
        r#"{kind = "nat", addresses = ["192.0.2.1", "2001:db8::1"]}"#,
        "kept kept kept kept",
    ),
    (r#"{kind = "nat", idle = "15ms"}"#, "fell fell fell fell"),
    // It forgets a SYN before the answer comes, unless another one follows within 15 ms, and RFC 6298 section 5.5 allows none.
    (
        r#"{kind = "nat", idle = "15ms", unknown = "reset"}"#,
        "lost lost lost lost",
    ),
    (
        r#"{kind = "nat", idle = "15ms", unknown = "remap"}"#,
        "lost lost lost lost",
    ),
    (r#"{kind = "isn"}"#, "kept kept kept kept"),
    (r#"{kind = "isn", sack = false}"#, "kept kept kept kept"),
    (
        r#"{kind = "isn"}, {kind = "police"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "isn", sack = false}, {kind = "police"}"#,
        "kept kept kept kept",
    ),
    (r#"{kind = "split"}"#, "kept kept kept kept"),
    (r#"{kind = "split", keep = "first"}"#, "kept kept kept kept"),
    (r#"{kind = "split", keep = "last"}"#, "fell fell fell fell"),
    (r#"{kind = "split", size = 100}"#, "kept kept kept kept"),
    (
        r#"{kind = "split", size = 100, keep = "first"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "split", size = 700, way = "out"}, {kind = "split", size = 300, way = "in"}"#,
        "kept kept kept kept",
    ),
    (r#"{kind = "coalesce"}"#, "kept kept kept kept"),
    (
        r#"{kind = "split"}, {kind = "coalesce", keep = "last"}"#,
        "kept kept kept kept",
    ),
    (
        // Of some mappings nothing is left, however often they are repeated together.
        r#"{kind = "split", keep = "first"}, {kind = "coalesce", keep = "last"}"#,
        "fell fell fell fell",
    ),
    (r#"{kind = "rewrite"}"#, "fell fell fell fell"),
    (r#"{kind = "rewrite", way = "in"}"#, "fell fell fell fell"),
    (
        r#"{kind = "rewrite", replace = "!"}"#,
        "fell fell fell fell",
    ),
    (r#"{kind = "rewrite", replace = ""}"#, "fell fell fell fell"),
    (
        r#"{kind = "rewrite", replace = "", way = "out"}"#,
        "fell fell fell fell",
    ),
    (
        r#"{kind = "corrupt", chance = "100%"}"#,
        "fell fell fell fell",
    ),
    (
        r#"{kind = "corrupt", chance = "0.5%", after = "100KB"}"#,
        "fell lost fell lost",
    ),
    (
        r#"{kind = "corrupt", chance = "0.5%", after = "100KB", way = "out"}"#,
        "fell lost fell lost",
    ),
    (
        r#"{kind = "corrupt", chance = "0.5%", after = "100KB", way = "in"}"#,
        "fell lost fell lost",
    ),
    (r#"{kind = "proxy"}"#, "fell fell fell fell"),
    (r#"{kind = "proxy", way = "out"}"#, "fell fell fell fell"),
    (r#"{kind = "proxy", way = "in"}"#, "fell fell fell fell"),
    (r#"{kind = "proxy", hold = "50ms"}"#, "fell fell fell fell"),
    (r#"{kind = "proxy", buffer = "5KB"}"#, "fell fell fell fell"),
    (
        r#"{kind = "police"}, {kind = "proxy"}"#,
        "fell fell fell fell",
    ),
    (
        r#"{kind = "proxy"}, {kind = "police"}"#,
        "fell fell fell fell",
    ),
    (
        r#"{kind = "proxy", hold = "20ms"}, {kind = "police"}"#,
        "fell fell fell fell",
    ),
    (r#"{kind = "drop-after-hole"}"#, "kept kept kept kept"),
    (
        r#"{kind = "drop-after-hole"}, {kind = "police"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "police"}, {kind = "drop-after-hole"}"#,
        "kept kept kept kept",
    ),
    (r#"{kind = "ack-check"}"#, "kept kept kept kept"),
    (
        r#"{kind = "police"}, {kind = "ack-check"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "police"}, {kind = "ack-check", wrong = "correct"}"#,
        "kept kept kept kept",
    ),
    (r#"{kind = "original"}"#, "kept kept kept kept"),
    (
        r#"{kind = "police"}, {kind = "original"}"#,
        "kept kept kept kept",
    ),
    (r#"{kind = "shrink-window"}"#, "kept kept kept kept"),
    (
        r#"{kind = "shrink-window", most = "3000"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "shrink-window", most = "16KB", after = "100ms"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "shrink-window", most = "1500", after = "100ms"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "remove-option", phases = ["syn"]}, {kind = "police"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "remove-option", phases = ["syn-ack"]}, {kind = "police"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "remove-option", option = "sack", phases = ["data", "other"]}, {kind = "police"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "remove-option", option = "timestamps"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "remove-option", option = "timestamps", phases = ["syn-ack"]}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "remove-option", option = "timestamps", phases = ["data", "other"]}"#,
        "kept kept kept kept",
    ),
    (r#"{kind = "reset"}"#, "lost lost lost lost"),
    (r#"{kind = "reset", way = "out"}"#, "lost lost lost lost"),
    (r#"{kind = "reset", way = "in"}"#, "lost lost lost lost"),
    (
        r#"{kind = "reset", after-bytes = "0"}"#,
        "lost lost lost lost",
    ),
    (r#"{kind = "police"}"#, "kept kept kept kept"),
    (
        r#"{kind = "police", rate = "500kbit/s", burst = "5KB"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "blackhole", after = "200ms", lasts = "500ms"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "blackhole", after = "200ms", lasts = "3s"}"#,
        "lost lost lost lost",
    ),
    (
        r#"{kind = "blackhole", after = "200ms"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "blackhole", after = "200ms", way = "out"}"#,
        "kept kept kept kept",
    ),
    (
        r#"{kind = "blackhole", after = "0s", lasts = "1500ms", way = "in"}"#,
        // The answers to three offers are lost, and that to the SYN without one, for which the server repeats it so.
        "fell fell kept kept",
    ),
];
