//! The text of kernel files: a layout for one text reads any other text, and never returns invented values.

use std::sync::LazyLock;

use polymeter_agent::sources::Reading;
use polymeter_agent::sources::layout::{Layout, Wanted};
use polymeter_proto::catalogue::{self, Definition, Form, Origin};

static WANTED: LazyLock<Vec<(Form, Vec<Wanted>)>> = LazyLock::new(|| {
    let mut forms: Vec<(Form, Vec<Wanted>)> = Vec::new();
    for metric in catalogue::all() {
        for origin in metric.origins {
            let Origin::Text { file, field } = origin else { continue };
            let wanted = Wanted { definition: Definition { metric, instance: None }, field: *field };
            match forms.iter_mut().find(|(form, _)| *form == file.form) {
                Some((_, all)) => all.push(wanted),
                None => forms.push((file.form, vec![wanted])),
            }
        }
    }
    forms
});

pub fn body(data: &[u8]) {
    // The first text is for the discovery of positions, the second one for reading.
    let middle = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (before, after) = data.split_at(middle);
    for (form, wanted) in WANTED.iter() {
        let Ok(mut layout) = Layout::discover(*form, before, wanted, &[]) else { continue };
        let slots = layout.slots().len();
        let mut reading = Reading::absent(slots);
        layout.read(before, &mut reading);
        reading.clear();
        layout.read(after, &mut reading);
        assert_eq!(reading.len(), slots);
        reading.clear();
        layout.read(b"", &mut reading);
        assert!(reading.iter().all(|value| value.is_none()), "an empty file has no values");
    }
}
