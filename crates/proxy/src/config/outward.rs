//! `[resolver]`, `[via]` and `[https]`: who is asked for the addresses of targets, by whom they are reached, and whose certificates of
//! them are believed.

use std::net::{AddrParseError, IpAddr, SocketAddr};

use super::table::{Table, read_path};
use crate::converter::ConverterSpec;
use crate::endpoint::HostPort;
use crate::target::tls::Roots;

/// Name servers that are asked at most: each is asked by each path.
const MOST_NAME_SERVERS: usize = 8;

pub(super) fn resolver_of(table: Table<'_>) -> Vec<SocketAddr> {
    const SERVER: &str = "an address as \"10.0.0.1\" or \"10.0.0.1:5353\"";
    let servers = table.needed("servers", {
        let servers = table.list("servers", SERVER, read_name_server);
        (!servers.is_empty()).then_some(servers)
    });
    let servers = servers.unwrap_or_default();
    if let Some(at) = table
        .place_of("servers")
        .filter(|_| servers.len() > MOST_NAME_SERVERS)
    {
        let message = format!("`servers`: no more than {MOST_NAME_SERVERS} are asked");
        table.wrong(at, message);
    }
    table.end();
    servers
}

/// An address, IPv6 with a port in brackets; without a port it is 53.
fn read_name_server(text: &str) -> Result<SocketAddr, String> {
    let alone = |_: AddrParseError| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53));
    let server = text.parse().or_else(alone).ok();
    server.filter(|server: &SocketAddr| server.port() != 0).ok_or_else(|| {
        format!("'{text}' is no address of a name server, as 10.0.0.1, 10.0.0.1:5353 or [fd00::1]:53")
    })
}

/// The converter that connections of our stack go through.
pub(super) fn via_of(table: Table<'_>) -> Option<ConverterSpec> {
    const WHERE: &str = "a host and a port as \"converter.example:5124\"";
    let at = table.needed(
        "converter",
        table.read("converter", WHERE, str::parse::<HostPort>),
    );
    let (key, direct) = (table.path("key"), table.switch("direct"));
    table.end();
    Some(ConverterSpec {
        at: at?.value,
        key: key.map(|key| key.value),
        direct: direct.unwrap_or_default(),
    })
}

/// `ca`: "system", paths of files, or a list of both.
pub(super) fn roots_of(table: Table<'_>) -> Roots {
    let read = |text: &str| match text {
        "system" => Ok(None),
        path => read_path(path).map(Some),
    };
    let named = table.list("ca", "\"system\" or the path of a file", read);
    table.end();
    if named.is_empty() {
        return Roots::default();
    }
    Roots {
        system: named.contains(&None),
        files: named.into_iter().flatten().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read_text;

    #[test]
    fn name_servers_are_addresses_with_or_without_a_port() {
        for (text, wanted) in [
            ("10.0.0.1", Some("10.0.0.1:53")),
            ("10.0.0.1:5353", Some("10.0.0.1:5353")),
            ("fd00::1", Some("[fd00::1]:53")),
            ("[fd00::1]:5353", Some("[fd00::1]:5353")),
            ("10.0.0.1:0", None),
            ("dns.example", None),
            ("", None),
        ] {
            let read = read_name_server(text).ok().map(|server| server.to_string());
            assert_eq!(read.as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn a_converter_is_named_by_address_or_name() {
        let read = |text: &str| read_text(text).map(|draft| draft.config.via);
        assert_eq!(read(""), Ok(None));
        let text =
            "[via]\nconverter = \"converter.example:5124\"\nkey = \"/etc/key\"\ndirect = true\n";
        let via = read(text).expect("well-formed").expect("there is one");
        assert_eq!(via.at.to_string(), "converter.example:5124");
        assert_eq!(via.key.as_deref(), Some(std::path::Path::new("/etc/key")));
        assert!(via.direct);
        for wrong in [
            "[via]\n",
            "[via]\nconverter = \"converter.example\"\n",
            "[via]\nconverter = \"192.0.2.1:5124\"\nkeys = \"/etc/key\"\n",
            "[via]\nconverter = \"192.0.2.1:5124\"\nkey = \"key\"\n",
        ] {
            assert_eq!(read(wrong).expect_err(wrong).len(), 1, "{wrong}");
        }
    }

    #[test]
    fn both_tables_have_defaults_and_are_read() {
        let read = |text: &str| read_text(text).map(|draft| draft.config);
        let config = read("").expect("nothing is wrong");
        assert!(config.name_servers.is_empty());
        assert_eq!(config.roots, Roots::default());
        let text = "[resolver]\nservers = \"10.0.0.1\"\n[https]\nca = [\"system\", \"/a.pem\"]\n";
        let config = read(text).expect("well-formed");
        assert_eq!(config.name_servers.len(), 1);
        assert!(config.roots.system);
        assert_eq!(config.roots.files.len(), 1);
        let config = read("[https]\nca = \"/a.pem\"\n").expect("well-formed");
        assert!(!config.roots.system);
        let many = format!("[resolver]\nservers = {:?}\n", ["10.0.0.1"; 9]);
        for wrong in ["[resolver]\n", &many, "[https]\nca = \"a.pem\"\n"] {
            assert_eq!(read(wrong).expect_err(wrong).len(), 1, "{wrong}");
        }
    }
}
