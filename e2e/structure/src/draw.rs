//! A drawing of the imports, in layers: each name is above all names that it imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::Workspace;
use crate::cycles::{self, Names};

pub type Drawings = BTreeMap<String, String>;

const ROW_PX: usize = 84;
const BOX_HEIGHT_PX: usize = 26;
const CHARACTER_PX: usize = 8;
const GAP_PX: usize = 18;
const MARGIN_PX: usize = 20;
const HEAD_PX: usize = 34;

/// Draws the crates of a workspace, and the modules of each crate that has more than one. A crate with a
/// library and programs is drawn as its library.
#[must_use]
pub fn all(workspace: &Workspace) -> Drawings {
    let mut drawings = Drawings::new();
    let mut crates = Names::new();
    for member in &workspace.members {
        let local = member.dependencies.iter().filter_map(|name| workspace.package(name));
        crates.insert(member.directory.clone(), local.map(|other| other.directory.clone()).collect());
        let Some(target) = member.targets.first() else { continue };
        let modules = cycles::by_directory(target).remove(&target.directory).unwrap_or_default();
        if modules.len() > 1 {
            let file = format!("{}.svg", member.directory.replace('/', "-"));
            drawings.insert(file, svg(&format!("{}/src", member.directory), &modules));
        }
    }
    drawings.insert("crates.svg".to_owned(), svg("crates of the workspace", &crates));
    drawings
}

/// Layer of each name: 0 for a name that imports nothing. Imports within a cycle do not count.
fn layers(names: &Names) -> BTreeMap<String, usize> {
    let cycles = cycles::find(names);
    let mut layers: BTreeMap<String, usize> = names.keys().map(|name| (name.clone(), 0)).collect();
    layers.extend(names.values().flatten().map(|name| (name.clone(), 0)));
    // The longest path has fewer edges than there are names.
    for _ in 0..layers.len() {
        for (name, imported) in names {
            let below = imported.iter().filter(|other| {
                let is_in_cycle = cycles.iter().any(|cycle| cycle.contains(name) && cycle.contains(*other));
                *other != name && !is_in_cycle
            });
            let layer = below.map(|other| layers[other] + 1).max().unwrap_or(0);
            let own = layers.entry(name.clone()).or_insert(0);
            *own = layer.max(*own);
        }
    }
    layers
}

/// Draws an SVG of the names and the imports between them. Imports that form cycles are red and dashed.
#[must_use]
pub fn svg(title: &str, names: &Names) -> String {
    let layers = layers(names);
    let rows_max = layers.values().max().copied().unwrap_or(0);
    let mut rows: Vec<Vec<&String>> = vec![Vec::new(); rows_max + 1];
    layers.iter().for_each(|(name, layer)| rows[rows_max - layer].push(name));
    let box_px = |name: &str| name.chars().count() * CHARACTER_PX + 16;
    let row_px = |row: &[&String]| row.iter().map(|name| box_px(name) + GAP_PX).sum::<usize>();
    let width = rows.iter().map(|row| row_px(row)).max().unwrap_or(0) + 2 * MARGIN_PX;
    let height = HEAD_PX + rows.len() * ROW_PX;
    // The centre of each box and the upper edge of its row, in pixels.
    let mut places: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (number, row) in rows.iter().enumerate() {
        let mut left = (width - row_px(row)) / 2 + GAP_PX / 2;
        for name in row {
            places.insert(name, (left + box_px(name) / 2, HEAD_PX + number * ROW_PX + 20));
            left += box_px(name) + GAP_PX;
        }
    }
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" font-family=\"monospace\" font-size=\"13\">\n\
         <title>Imports: {title}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{MARGIN_PX}\" y=\"22\" font-weight=\"bold\">{title}: each imports only what lies below it</text>\n"
    );
    let cycles: Vec<BTreeSet<String>> = cycles::find(names);
    for (name, imported) in names {
        for other in imported.iter().filter(|other| *other != name) {
            let ((x1, y1), (x2, y2)) = (places[name.as_str()], places[other.as_str()]);
            let is_cycle = cycles.iter().any(|cycle| cycle.contains(name) && cycle.contains(other));
            let style = if is_cycle { "stroke=\"#c00\" stroke-dasharray=\"5 3\"" } else { "stroke=\"#89a\"" };
            let (y1, y2) = if y1 < y2 { (y1 + BOX_HEIGHT_PX, y2) } else { (y1, y2 + BOX_HEIGHT_PX) };
            writeln!(text, "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" {style}/>").unwrap();
        }
    }
    for (name, (x, y)) in &places {
        let width = box_px(name);
        writeln!(
            text,
            "<rect x=\"{}\" y=\"{y}\" width=\"{width}\" height=\"{BOX_HEIGHT_PX}\" rx=\"4\" fill=\"#eef3f8\" stroke=\"#456\"/>\n\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
            x - width / 2,
            y + 17
        )
        .unwrap();
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_above_what_it_imports() {
        let names: Names = [("a", vec!["b", "c"]), ("b", vec!["c"]), ("c", vec!["d"]), ("d", vec!["c"])]
            .map(|(name, imported)| (name.to_owned(), imported.into_iter().map(str::to_owned).collect()))
            .into();
        let layers = layers(&names);
        assert_eq!(layers.values().copied().collect::<Vec<_>>(), [2, 1, 0, 0]);
        let drawing = svg("x", &names);
        assert_eq!((drawing.matches("<line").count(), drawing.matches("#c00").count()), (5, 2));
    }
}
