//! Stacks of a job by the ids of the store.

use std::collections::HashMap;

use polymeter_store::reader::StackNodeRow;

/// Stacks of a job that are held in memory: about 30 MiB. Samples of others count as without symbol.
const STACKS_MAX: usize = 300_000;

/// Functions of a stack. Agents cut longer ones; a longer one is damaged.
const DEPTH_MAX: usize = 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function {
    /// Empty without a symbol.
    pub name: String,
    /// Base name of its file, `[kernel]` or `[jit]`; empty if unknown.
    pub module: String,
}

impl Function {
    pub const fn has_symbol(&self) -> bool {
        !self.name.is_empty()
    }

    /// Name, or the module in brackets where it has none.
    pub fn label(&self) -> String {
        match (self.name.as_str(), self.module.as_str()) {
            ("", "") => "[unknown]".to_owned(),
            ("", module) if module.starts_with('[') => module.to_owned(),
            ("", module) => format!("[{module}]"),
            (name, _) => name.to_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct StackNode {
    parent: Option<i64>,
    function: usize,
}

#[derive(Debug, Default)]
pub struct Stacks {
    functions: Vec<Function>,
    by_function: HashMap<Function, usize>,
    nodes: HashMap<i64, StackNode>,
}

impl Stacks {
    /// Takes stacks in any order. Those beyond the largest number are left out.
    pub fn add(&mut self, row: StackNodeRow) {
        if self.nodes.len() >= STACKS_MAX {
            return;
        }
        let function = Function { name: row.function, module: row.module };
        let number = match self.by_function.get(&function) {
            Some(number) => *number,
            None => {
                let number = self.functions.len();
                self.functions.push(function.clone());
                self.by_function.insert(function, number);
                number
            }
        };
        self.nodes.insert(row.stack_id, StackNode { parent: row.parent_id, function: number });
    }

    /// None for an unknown stack.
    pub fn innermost(&self, stack_id: i64) -> Option<&Function> {
        self.functions.get(self.nodes.get(&stack_id)?.function)
    }

    /// Functions of a stack from the outermost to the innermost; none for an unknown stack, one with unknown
    /// callers, and one of impossible length.
    pub fn path(&self, stack_id: i64) -> Option<Vec<&Function>> {
        let mut path = Vec::new();
        let mut next = Some(stack_id);
        while let Some(id) = next {
            let node = self.nodes.get(&id)?;
            path.push(self.functions.get(node.function)?);
            if path.len() > DEPTH_MAX {
                return None;
            }
            next = node.parent;
        }
        path.reverse();
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(stack_id: i64, parent_id: Option<i64>, function: &str) -> StackNodeRow {
        StackNodeRow { stack_id, parent_id, function: function.to_owned(), module: "a.out".to_owned() }
    }

    #[test]
    fn a_path_leads_from_the_outermost_function_to_the_innermost() {
        let mut stacks = Stacks::default();
        for row in
            [row(3, Some(2), "dot"), row(1, None, "main"), row(2, Some(1), "solve"), row(4, Some(9), "x")]
        {
            stacks.add(row);
        }
        let names = |id| Some(stacks.path(id)?.into_iter().map(|function| function.name.as_str()).collect());
        assert_eq!(names(3), Some(vec!["main", "solve", "dot"]));
        assert_eq!((names(4), names(5)), (None, None), "unknown callers, and an unknown stack");
    }

    #[test]
    fn a_stack_that_calls_itself_for_ever_has_no_path() {
        let mut stacks = Stacks::default();
        stacks.add(row(1, Some(2), "a"));
        stacks.add(row(2, Some(1), "b"));
        assert_eq!(stacks.path(1), None);
    }

    #[test]
    fn a_function_without_symbol_is_named_by_its_module() {
        let label =
            |name: &str, module: &str| Function { name: name.to_owned(), module: module.to_owned() }.label();
        assert_eq!(label("f", "libm.so.6"), "f");
        assert_eq!(label("", "libm.so.6"), "[libm.so.6]");
        assert_eq!(label("", "[kernel]"), "[kernel]");
        assert_eq!(label("", ""), "[unknown]");
    }
}
