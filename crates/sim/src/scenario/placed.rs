//! A middlebox and the end of a link that it is at.

use serde::ser::Error;
use serde::{Deserialize, Serialize, Serializer};

use super::EndSpec;
use crate::middlebox::BoxSpec;

/// A middlebox at one end of a link: in the file, the box's own table with one more word, `at`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "toml::Table")]
pub struct PlacedBox {
    /// Which end it is at; packets that leave it go [`Way::Out`](crate::middlebox::Way::Out).
    pub at: EndSpec,
    /// The box.
    pub spec: BoxSpec,
}

impl TryFrom<toml::Table> for PlacedBox {
    type Error = toml::de::Error;

    // By hand, because serde cannot both flatten and refuse misspelt words.
    fn try_from(mut table: toml::Table) -> Result<Self, Self::Error> {
        let at = table.remove("at").map(toml::Value::try_into).transpose()?;
        Ok(Self {
            at: at.unwrap_or_default(),
            spec: table.try_into()?,
        })
    }
}

impl Serialize for PlacedBox {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut table = toml::Table::try_from(&self.spec).map_err(S::Error::custom)?;
        let at = toml::Value::try_from(self.at).map_err(S::Error::custom)?;
        table.insert("at".into(), at);
        table.serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;
    use crate::scenario::Scenario;

    #[test]
    fn chains_of_all_boxes_come_back_in_their_order() {
        let mut scenario = Scenario::parse(&random::text(1)).unwrap();
        let place = |(index, spec)| PlacedBox {
            at: [EndSpec::First, EndSpec::Second][index % 2],
            spec,
        };
        scenario.links[0].boxes = BoxSpec::all().into_iter().enumerate().map(place).collect();
        let text = scenario.to_toml().unwrap();
        assert_eq!(Scenario::parse(&text).unwrap(), scenario, "{text}");
    }
}
