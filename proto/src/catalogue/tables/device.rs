//! Values of devices outside the nodes. The configuration of the agent that polls them names them, and says
//! their unit.

use crate::catalogue::metric::{Metric, Scope};
use crate::catalogue::origin::{DEVICE_KIND, Origin};
use crate::series::{Kind, Unit};

const NAME: &str = "device.*";

const ORIGINS: &[Origin] = &[Origin::source(DEVICE_KIND, "value", "a device that `[[device]]` names")];

const HELP: &str = "Value of a device outside the nodes, by the names of the device and of the value, such as \
                    `device.pdu3.power`. Its unit is that of the configuration.";

pub(crate) static METRICS: &[Metric] = &[gauge(Unit::Labelled)];

/// The same family with the units and types of its instances.
macro_rules! of_units {
    ($($unit:ident)*) => {
        &[$(gauge(Unit::$unit), count(Unit::$unit), count(Unit::$unit).of_32_bits(1), sum(Unit::$unit)),*]
    };
}

pub(crate) static INSTANCES: &[Metric] = of_units! {
    Bytes Nanoseconds Percent Pages Sectors Cycles Count Labelled Celsius Joules Watts Hertz Volts Amperes
    RevolutionsPerMinute BytesPerSecond
};

const fn gauge(unit: Unit) -> Metric {
    Metric::new(NAME, unit, Kind::Gauge, Scope::Node, ORIGINS, HELP).float()
}

const fn count(unit: Unit) -> Metric {
    Metric::new(NAME, unit, Kind::Counter, Scope::Node, ORIGINS, HELP)
}

const fn sum(unit: Unit) -> Metric {
    count(unit).float()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_has_its_instances() {
        assert_eq!(INSTANCES.len(), 4 * Unit::ALL.len());
        for unit in Unit::ALL {
            assert_eq!(INSTANCES.iter().filter(|metric| metric.unit == unit).count(), 4, "{unit:?}");
        }
    }
}
