//! Kind of kernel text files that do not block: each metric comes from the first of its files that this
//! machine has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use polymeter_proto::catalogue::{Definition, Field, Hierarchy, Origin, Row, TEXT_FILE_KIND, TextFile};

use super::finder::Finder;
use super::kind::{Lane, OpenRequest, Opening, SourceKind, metrics_of};
use super::path_pattern::{Match, Matches, PatternWatch, matches};
use super::read_buffer::ReadBuffer;
use super::reading::Reading;
use super::slot::{Unavailable, Wanted};
use super::source::Source;
use super::summed_file::SummedFileSource;
use super::target::Target;
use super::text_file::{OpenError, TextFileSource};

pub(super) struct TextFileKind;

impl SourceKind for TextFileKind {
    fn name(&self) -> &'static str {
        TEXT_FILE_KIND
    }

    fn lane(&self) -> Lane {
        Lane::Fast
    }

    fn open(&self, request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
        let leaves = request.wanted.iter().any(is_alternative) && !any_has_counted(request);
        let mut search = Search { request, opened: BTreeMap::new(), fields: BTreeMap::new() };
        let mut candidates = Vec::new();
        for definition in &request.wanted {
            if leaves && is_alternative(definition) {
                opening.leave(definition.clone());
            } else {
                candidates.push(Candidate::new(definition.clone()));
            }
        }
        // Each round tries one more origin of the metrics that are still missing; no metric has more than a
        // few.
        while !candidates.is_empty() {
            candidates = search.round(candidates, opening);
        }
        search.finish(opening);
        watch_files(request, opening);
    }
}

/// A metric whose file is not found yet.
struct Candidate {
    definition: Definition,
    next_origin: usize,
    reasons: Vec<String>,
    /// True if a file exists that cannot be read now.
    may_recover: bool,
    /// True once a file was opened that may get lines for wanted devices later.
    is_dormant: bool,
}

impl Candidate {
    const fn new(definition: Definition) -> Self {
        Self { definition, next_origin: 0, reasons: Vec::new(), may_recover: false, is_dormant: false }
    }

    /// Next of its origins that is a file of the target, with the paths of that file.
    fn next_file(&mut self, request: &OpenRequest<'_>) -> Option<(&'static TextFile, Field, Matches)> {
        while let Some(origin) = self.definition.metric.origins.get(self.next_origin) {
            self.next_origin += 1;
            if let Origin::Text { file, field } = origin {
                let matches = paths(request, file);
                if !matches.found.is_empty() {
                    return Some((file, *field, matches));
                }
            }
        }
        None
    }

    fn unavailable(self, target: &Target) -> Unavailable {
        let without_file = match target {
            Target::Cgroups(_) | Target::Processes(_) => {
                "the job has no cgroup of the controller that provides it"
            }
            Target::Node(_) => "this node has no such device",
        };
        let reasons = self.reasons.join("; ");
        let reason = if reasons.is_empty() { without_file.to_owned() } else { reasons };
        Unavailable { definition: self.definition, reason, may_recover: self.may_recover }
    }
}

struct FileFields {
    file: &'static TextFile,
    found: Match,
    wanted: Vec<Wanted>,
}

struct Search<'a> {
    request: &'a OpenRequest<'a>,
    opened: BTreeMap<PathBuf, TextFileSource>,
    fields: BTreeMap<PathBuf, FileFields>,
}

impl Search<'_> {
    /// Tries the next origin of each candidate. Returns those for which it failed.
    fn round(&mut self, candidates: Vec<Candidate>, opening: &mut Opening<'_>) -> Vec<Candidate> {
        let mut tried: Vec<(Candidate, Field, Vec<PathBuf>)> = Vec::new();
        for mut candidate in candidates {
            match candidate.next_file(self.request) {
                Some((file, field, Matches { found, passed_over })) => {
                    if let Some(reason) = passed_over {
                        opening.unavailable(candidate.definition.clone(), reason);
                    }
                    let paths = found.iter().map(|found| found.path.clone()).collect();
                    self.want(file, field, found, &candidate.definition);
                    tried.push((candidate, field, paths));
                }
                None if candidate.is_dormant => {}
                None => opening.missing(candidate.unavailable(self.request.target)),
            }
        }
        let failures = self.open_wanted();
        let mut missing = Vec::new();
        for (mut candidate, field, paths) in tried {
            let opened = || paths.iter().filter_map(|path| self.opened.get(path));
            let unreadable = paths.iter().find_map(|path| failures.get(path).filter(|e| e.may_recover()));
            if opened().any(|source| gives(source, &candidate.definition)) {
                if let Some(error) = unreadable {
                    let (definition, reason) = (candidate.definition, error.to_string());
                    opening.missing(Unavailable { definition, reason, may_recover: true });
                }
                continue;
            }
            let may_come = matches!(field.row, Row::Each { .. });
            candidate.is_dormant |= may_come && opened().any(|source| source.slots().is_empty());
            candidate.may_recover |= unreadable.is_some();
            let failure = paths.first().map(|path| match failures.get(path) {
                Some(failure) => failure.to_string(),
                None => OpenError::Lacking(path.clone()).to_string(),
            });
            candidate.reasons.extend(failure);
            missing.push(candidate);
        }
        missing
    }

    /// Wants a further field of the files `found`: `open_wanted` opens them anew.
    fn want(&mut self, file: &'static TextFile, field: Field, found: Vec<Match>, definition: &Definition) {
        for found in found {
            self.opened.remove(&found.path);
            let fields = self.fields.entry(found.path.clone()).or_insert_with(|| FileFields {
                file,
                found,
                wanted: Vec::new(),
            });
            fields.wanted.push(Wanted { definition: definition.clone(), field });
        }
    }

    fn open_wanted(&mut self) -> BTreeMap<PathBuf, OpenError> {
        let mut failures = BTreeMap::new();
        for (path, FileFields { file, found, wanted }) in &self.fields {
            if self.opened.contains_key(path) {
                continue;
            }
            match TextFileSource::open(path, file.form, wanted, &found.labels) {
                Ok(source) => drop(self.opened.insert(path.clone(), source)),
                Err(error) => drop(failures.insert(path.clone(), error)),
            }
        }
        self.fields.retain(|path, _| self.opened.contains_key(path));
        failures
    }

    fn finish(self, opening: &mut Opening<'_>) {
        let mut fields = self.fields;
        for (path, source) in self.opened {
            if let Some(FileFields { file, found, .. }) = fields.remove(&path) {
                push_file(file, &found, source, opening);
            }
        }
    }
}

/// Passes on a file under its name; if each cgroup counts for itself, with the files of all cgroups below.
fn push_file(file: &'static TextFile, found: &Match, source: TextFileSource, opening: &mut Opening<'_>) {
    let name = source_name(file, found);
    let top = found.path.parent().filter(|_| file.is_local);
    match top.map(|top| SummedFileSource::open(top, file.path, file.form, all_of(file), &found.labels)) {
        Some(Ok((summed, below))) => {
            if let Some(opened) = opening.push_mut(name, Source::SummedFile(summed)) {
                opened.below = Some(Finder::Cgroups(below));
            }
        }
        // Its cgroup was removed meanwhile, which a read of the file will report.
        Some(Err(_)) | None => opening.push(name, Source::TextFile(source)),
    }
}

/// Directory to which the paths of a hierarchy are relative.
fn directory(request: &OpenRequest<'_>, hierarchy: Hierarchy) -> Option<PathBuf> {
    let mounts = request.host.mounts;
    match (request.target, hierarchy) {
        (Target::Node(_), Hierarchy::Proc) => Some(mounts.proc.clone()),
        (Target::Node(_), Hierarchy::Sys) => Some(mounts.sys()),
        (Target::Cgroups(cgroups), hierarchy) => cgroups.directory(hierarchy).map(Path::to_owned),
        (Target::Node(_) | Target::Processes(_), _) => None,
    }
}

/// Paths of a file for a target, each with the labels of its step and of its path.
pub(super) fn paths(request: &OpenRequest<'_>, file: &TextFile) -> Matches {
    let Some(directory) = directory(request, file.hierarchy) else { return Matches::default() };
    let mut matches = matches(&directory, file);
    if let Some(step) = request.host.step {
        for found in &mut matches.found {
            found.labels.splice(0..0, step.labels.iter().cloned()).for_each(drop);
        }
    }
    matches
}

/// Watches files of wanted metrics that may appear later: missing ones, and those whose wildcards stand for
/// devices.
pub(super) fn watch_files(request: &OpenRequest<'_>, opening: &mut Opening<'_>) {
    let mut by_hierarchy: BTreeMap<PathBuf, Vec<&'static str>> = BTreeMap::new();
    for origin in request.wanted.iter().flat_map(|definition| definition.metric.origins) {
        if let Origin::Text { file, .. } = origin
            && !file.is_joined
            && let Some(directory) = directory(request, file.hierarchy)
            && (file.path.contains('*') || !directory.join(file.path).exists())
        {
            by_hierarchy.entry(directory).or_default().push(file.path);
        }
    }
    for (directory, paths) in by_hierarchy {
        let watch = PatternWatch::new(&directory, watched(paths));
        opening.push("absent files".to_owned(), Source::Custom(Box::new(watch)));
    }
}

/// Patterns to watch for new files. A directory with dozens of wanted files is watched by itself and by one
/// of the files, which may appear a little later.
fn watched(paths: impl IntoIterator<Item = &'static str>) -> BTreeSet<&'static str> {
    let mut patterns = BTreeSet::new();
    let mut directories = BTreeSet::new();
    for path in paths {
        let device =
            path.rsplit_once('/').map(|(directory, _)| directory).filter(|device| device.contains('*'));
        match device {
            None => {
                patterns.insert(path);
            }
            Some(device) if directories.insert(device) => patterns.extend([device, path]),
            Some(_) => {}
        }
    }
    patterns
}

fn is_alternative(definition: &Definition) -> bool {
    definition.metric.origins.iter().any(|origin| origin.kind() != TEXT_FILE_KIND)
}

/// True if any file of a metric with an alternative counts. On version 1 the files may exist but count
/// nothing. Once any of them has counted something, all are trusted, since two origins side by side would
/// count twice.
fn any_has_counted(request: &OpenRequest<'_>) -> bool {
    any_file_with_alternative(request, |file, source| file.hierarchy == Hierarchy::V2 || has_counted(source))
}

/// True if `is_it` holds for any readable file of a metric with an alternative.
pub(super) fn any_file_with_alternative(
    request: &OpenRequest<'_>,
    is_it: impl Fn(&TextFile, TextFileSource) -> bool,
) -> bool {
    for definition in metrics_of(TEXT_FILE_KIND).map(Definition::of).filter(is_alternative) {
        for origin in definition.metric.origins {
            let Origin::Text { file, field } = origin else { continue };
            let wanted = [Wanted { definition: definition.clone(), field: *field }];
            for found in &paths(request, file).found {
                let source = TextFileSource::open(&found.path, file.form, &wanted, &found.labels);
                if source.is_ok_and(|source| is_it(file, source)) {
                    return true;
                }
            }
        }
    }
    false
}

fn has_counted(mut source: TextFileSource) -> bool {
    let mut reading = Reading::absent(source.slots().len());
    source.read(&mut ReadBuffer::default(), &mut reading);
    reading.iter().flatten().any(|value| value > 0)
}

fn all_of(file: &'static TextFile) -> Vec<Wanted> {
    let mut all = Vec::new();
    for metric in metrics_of(TEXT_FILE_KIND) {
        for origin in metric.origins {
            if let Origin::Text { file: of, field } = origin
                && std::ptr::eq(*of, file)
            {
                all.push(Wanted { definition: Definition::of(metric), field: *field });
            }
        }
    }
    all
}

/// Name as a source: `v1/memory.stat`, `v2/cpu.stat`, `proc/net/dev`, `sys/class/thermal/...`.
fn source_name(file: &TextFile, found: &Match) -> String {
    let hierarchy = match file.hierarchy {
        Hierarchy::V1(_) => "v1",
        Hierarchy::V2 => "v2",
        Hierarchy::Proc => "proc",
        Hierarchy::Sys => "sys",
    };
    format!("{hierarchy}/{}", found.relative)
}

fn gives(source: &TextFileSource, definition: &Definition) -> bool {
    source.slots().iter().any(|slot| {
        slot.definition.metric == definition.metric
            && (definition.is_family() || slot.definition.instance == definition.instance)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_watched_by_one_of_its_files() {
        let paths = ["a/x*", "a/y*", "b/*/c/x", "b/*/c/y*", "b/*/d/z", "e/f"];
        assert_eq!(
            watched(paths).into_iter().collect::<Vec<_>>(),
            ["a/x*", "a/y*", "b/*/c", "b/*/c/x", "b/*/d", "b/*/d/z", "e/f"]
        );
    }
}
