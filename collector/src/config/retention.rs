//! Section `[retention]`: the time for which samples and rollups are kept.

use polymeter_service::keys;
use polymeter_service::keys::Kind::Text;
use polymeter_service::keys::Stated::Set;
use polymeter_service::keys::Value;
use polymeter_store::Retention;

keys! {
    /// The keys of the section.
    pub(super) const KEYS: Retention = |retention, value|

    "raw": Text("keep"), Set("90d") => samples = value.parse(str::parse);
    "10s": Text("keep"), Set("90d") => ten_seconds = value.parse(str::parse);
    "1min": Text("keep"), Set("1y") => minute = value.parse(str::parse);
    "1h": Text("keep"), Set("forever") => hour = value.parse(str::parse);
}

/// A level that would be removed before a finer one is a fault.
pub(super) fn take(mut value: Value<'_, '_, '_>) -> Option<Retention> {
    let place = value.span()?;
    let mut retention = Retention::default();
    keys::read(KEYS, &mut retention, value.table()?, value.reporter);
    for (coarse, fine) in retention.conflicts() {
        let (key, kept, finer_kept) = (coarse.key(), retention.of(coarse), retention.of(fine));
        value.reporter.fault(
            &place,
            format_args!(
                "[retention]: `{key}` is kept for a shorter time ({kept}) than `{}` ({finer_kept}); \
                 set `{key}` to {finer_kept} or longer",
                fine.key()
            ),
        );
    }
    Some(retention)
}
