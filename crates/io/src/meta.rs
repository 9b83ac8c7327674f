//! Temporary mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfaceId(pub u32);
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    pub checksum: bool,
    pub max_burst: u32,
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxMeta {
    pub checksum_ok: bool,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxMeta {
    pub len: usize,
    pub gso_size: u16,
    pub header_len: u16,
    pub l4_offset: u16,
    pub ipv6: bool,
    pub partial_checksum: bool,
}
pub trait Slots {
    fn slot(&mut self, iface: IfaceId, room: usize) -> Option<&mut [u8]>;
    fn commit(&mut self, iface: IfaceId, meta: TxMeta);
}
