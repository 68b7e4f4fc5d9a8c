//! The files of a crate, which of them use which, and that no files use each other in a circle.
//!
//! An edge is a path in code that ships: `use` trees, types, expressions, macro arguments. It leads
//! to the file that defines the item; re-exports and glob imports are followed. A parent that only
//! declares or re-exports a child does not use it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item, UseTree, Visibility};

/// Crates without circles, each with the number of files that still stand in one; it only sinks.
const CHECKED: &[(&str, usize)] = &[("protocols", 0), ("storage", 0)];

/// Re-exports followed before a path counts as one of another crate.
const STEPS_MAX: usize = 32;

/// The files of a crate, each with those it uses. A file is named by its module's path.
#[derive(Debug, Default)]
pub struct Graph {
    pub edges: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Reads a crate from the folder that holds its `lib.rs`.
    ///
    /// # Errors
    /// When a file cannot be read or parsed.
    pub fn of(source: &Path) -> Result<Graph> {
        let mut tree = Tree::default();
        tree.read(Vec::new(), &source.join("lib.rs"), source)?;
        Ok(tree.graph())
    }

    /// Groups of files that use each other in a circle.
    #[must_use]
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let mut graph = DiGraphMap::<&str, ()>::new();
        for (from, targets) in &self.edges {
            for to in targets {
                graph.add_edge(from, to, ());
            }
        }
        let mut circles: Vec<Vec<&str>> =
            tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1).collect();
        circles.iter_mut().for_each(|files| files.sort_unstable());
        circles.sort_unstable();
        circles
    }

    /// A line per file below `module`: the file, and the files that it uses.
    #[must_use]
    pub fn lines(&self, module: &str) -> Vec<String> {
        let is_below = |file: &str| {
            file.strip_prefix(module)
                .is_some_and(|rest| module.is_empty() || rest.is_empty() || rest.starts_with("::"))
        };
        let files = self.edges.iter().filter(|(file, _)| is_below(file));
        let line = |(file, targets): (&String, &BTreeSet<String>)| {
            let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
            format!("{file} -> {}", targets.join(" "))
        };
        files.map(line).collect()
    }
}

/// Every circle in the checked crates that the table does not allow.
///
/// # Errors
/// When a file cannot be read or parsed.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for &(name, allowed) in CHECKED {
        let graph = Graph::of(&root.join("crates").join(name).join("src"))?;
        let circles = graph.circles();
        let count: usize = circles.iter().map(Vec::len).sum();
        if count > allowed {
            let circles: Vec<String> = circles.iter().map(|files| files.join(", ")).collect();
            wrong.push(format!(
                "`{name}`: {count} files use each other in circles, {allowed} may: move the shared \
                 items to a file that uses none of them: {}",
                circles.join("; ")
            ));
        } else if count < allowed {
            wrong.push(format!(
                "`{name}`: {count} files stand in circles: lower its {allowed} in xtask's table"
            ));
        }
    }
    Ok(wrong)
}

/// The meaning of a name in a module.
#[derive(Clone, Debug)]
enum Name {
    /// It is defined here.
    Own,
    /// A path elsewhere, with the module from which it is read.
    Import(Vec<String>),
}

/// One module.
#[derive(Debug, Default)]
struct Module {
    /// The module whose file holds it: itself, unless it is written inside another.
    file: Vec<String>,
    names: BTreeMap<String, Name>,
    globs: Vec<Vec<String>>,
    paths: BTreeSet<Vec<String>>,
}

#[derive(Debug, Default)]
struct Tree {
    modules: BTreeMap<Vec<String>, Module>,
}

impl Tree {
    fn read(&mut self, module: Vec<String>, file: &Path, folder: &Path) -> Result<()> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let parsed = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        self.read_items(&module, &module, parsed.items, folder)
    }

    fn read_items(
        &mut self,
        module: &[String],
        file: &[String],
        items: Vec<Item>,
        folder: &Path,
    ) -> Result<()> {
        let mut it = Module { file: file.to_vec(), ..Module::default() };
        for item in items {
            if is_test(attributes(&item)) {
                continue;
            }
            match item {
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let path = [module, std::slice::from_ref(&name)].concat();
                    let inside = folder.join(&name);
                    match child.content {
                        Some((_, items)) => self.read_items(&path, file, items, &inside)?,
                        None => self.read(path, &file_of(folder, &name)?, &inside)?,
                    }
                }
                Item::Use(item) => {
                    let is_export = !matches!(item.vis, Visibility::Inherited);
                    it.import(&item.tree, &mut Vec::new(), is_export);
                }
                item => {
                    if let Some(name) = name_of(&item) {
                        it.names.insert(name, Name::Own);
                    }
                    paths_of(item.to_token_stream(), &mut it.paths);
                }
            }
        }
        self.modules.insert(module.to_vec(), it);
        Ok(())
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::default();
        let shown = |path: &[String]| match path {
            [] => "lib".to_owned(),
            path => path.join("::"),
        };
        for (at, module) in &self.modules {
            let targets = graph.edges.entry(shown(&module.file)).or_default();
            for path in &module.paths {
                if let Some(file) = self.resolve(at, path, 0).filter(|file| *file != module.file) {
                    targets.insert(shown(&file));
                }
            }
        }
        graph
    }

    /// The file that defines the item which a path names in this module; `None` for other crates.
    fn resolve(&self, module: &[String], path: &[String], steps: usize) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        if steps > STEPS_MAX {
            return None;
        }
        match first.as_str() {
            "crate" => return self.walk(&[], rest, steps),
            "self" => return self.walk(module, rest, steps),
            "super" => return self.walk(module.split_last()?.1, rest, steps),
            _ => {}
        }
        self.find(module, first, rest, steps)
    }

    /// The same for a path that begins inside this module.
    fn walk(&self, module: &[String], path: &[String], steps: usize) -> Option<Vec<String>> {
        match path.split_first() {
            Some((first, rest)) if first == "super" => {
                self.walk(module.split_last()?.1, rest, steps)
            }
            Some((first, rest)) => self.find(module, first, rest, steps),
            None => Some(self.modules.get(module)?.file.clone()),
        }
    }

    fn find(
        &self,
        module: &[String],
        name: &str,
        rest: &[String],
        steps: usize,
    ) -> Option<Vec<String>> {
        let it = self.modules.get(module)?;
        let child = [module, &[name.to_owned()]].concat();
        if self.modules.contains_key(&child) {
            return self.walk(&child, rest, steps + 1);
        }
        match it.names.get(name) {
            Some(Name::Own) => return Some(it.file.clone()),
            Some(Name::Import(path)) => {
                let path = [path.as_slice(), rest].concat();
                return self.resolve(module, &path, steps + 1);
            }
            None => {}
        }
        let tail = [&[name.to_owned()], rest].concat();
        it.globs
            .iter()
            .find_map(|glob| self.resolve(module, &[glob.as_slice(), &tail].concat(), steps + 1))
    }
}

impl Module {
    fn import(&mut self, tree: &UseTree, path: &mut Vec<String>, is_export: bool) {
        match tree {
            UseTree::Path(it) => {
                path.push(it.ident.to_string());
                self.import(&it.tree, path, is_export);
                path.pop();
            }
            UseTree::Name(it) if it.ident == "self" => {
                let name = path.last().cloned().unwrap_or_default();
                self.bring(name, path.clone(), is_export);
            }
            UseTree::Name(it) => {
                let name = it.ident.to_string();
                self.bring(name.clone(), [path.as_slice(), &[name]].concat(), is_export);
            }
            UseTree::Rename(it) => {
                let target = [path.as_slice(), &[it.ident.to_string()]].concat();
                self.bring(it.rename.to_string(), target, is_export);
            }
            UseTree::Glob(_) => {
                if !is_export {
                    self.paths.insert(path.clone());
                }
                self.globs.push(path.clone());
            }
            UseTree::Group(it) => it.items.iter().for_each(|it| self.import(it, path, is_export)),
        }
    }

    fn bring(&mut self, name: String, path: Vec<String>, is_export: bool) {
        if !is_export {
            self.paths.insert(path.clone());
        }
        self.names.insert(name, Name::Import(path));
    }
}

/// `a::b::c` wherever it stands; single names stand for a `use` or an item beside them.
fn paths_of(tokens: TokenStream, into: &mut BTreeSet<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    let mut end = |path: &mut Vec<String>| {
        let path = std::mem::take(path);
        if path.len() > 1 {
            into.insert(path);
        }
    };
    let mut groups = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 {
                    end(&mut path);
                }
                path.push(name.to_string());
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
            other => {
                end(&mut path);
                colons = 0;
                if let TokenTree::Group(group) = other {
                    groups.push(group.stream());
                }
            }
        }
    }
    end(&mut path);
    for group in groups {
        paths_of(group, into);
    }
}

fn file_of(folder: &Path, name: &str) -> Result<PathBuf> {
    let places = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
    let found = places.into_iter().find(|place| place.exists());
    found.with_context(|| format!("{}: no file for `mod {name}`", folder.display()))
}

fn is_test(attributes: &[Attribute]) -> bool {
    let is = |it: &Attribute| {
        let tokens = it.meta.to_token_stream().to_string();
        tokens == "test" || (tokens.starts_with("cfg") && tokens.contains("test"))
    };
    attributes.iter().any(is)
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Union(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(it) => &it.ident,
        Item::Enum(it) => &it.ident,
        Item::Fn(it) => &it.sig.ident,
        Item::Macro(it) => it.ident.as_ref()?,
        Item::Static(it) => &it.ident,
        Item::Struct(it) => &it.ident,
        Item::Trait(it) => &it.ident,
        Item::Type(it) => &it.ident,
        Item::Union(it) => &it.ident,
        _ => return None,
    };
    Some(name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The graph of a crate of these modules, each with its text.
    fn graph(modules: &[(&str, &str)]) -> Graph {
        let mut tree = Tree::default();
        for (path, text) in modules {
            let path: Vec<String> =
                path.split("::").filter(|it| !it.is_empty()).map(str::to_owned).collect();
            let parsed = syn::parse_file(text).expect("it is Rust");
            tree.read_items(&path, &path, parsed.items, Path::new("")).expect("no files are read");
        }
        tree.graph()
    }

    fn circles(modules: &[(&str, &str)]) -> Vec<Vec<String>> {
        let graph = graph(modules);
        let owned = |files: Vec<&str>| files.into_iter().map(str::to_owned).collect();
        graph.circles().into_iter().map(owned).collect()
    }

    #[test]
    fn files_that_import_each_other_are_found() {
        let found = circles(&[
            ("", "use std::fmt;"),
            ("a", "use super::b::B; struct A;"),
            ("b", "use crate::a; struct B(a::A);"),
        ]);
        assert_eq!(found, [["a", "b"]]);
    }

    #[test]
    fn child_of_parent_that_uses_it_is_found() {
        let parent = "use child::Part; struct Whole(Part);";
        let child = "use super::Whole; struct Part; impl Whole {}";
        assert_eq!(circles(&[("p", parent), ("p::child", child)]), [["p", "p::child"]]);
        let child = "struct Part;";
        assert!(circles(&[("p", parent), ("p::child", child)]).is_empty());
    }

    #[test]
    fn exports_are_followed_to_the_definition() {
        let root = "pub use a::A; pub use b::*;";
        let a = "use crate::B; struct A;";
        let b = "struct B;";
        let graph = graph(&[("", root), ("a", a), ("b", b)]);
        assert_eq!(graph.lines("a"), ["a -> b"]);
        assert_eq!(graph.lines("lib"), ["lib -> "]);
    }

    #[test]
    fn paths_in_expressions_and_macros_count() {
        let a = "fn f() { assert_eq!(super::b::B::new(1), g(|x: u8| crate::c::C)); }";
        let graph = graph(&[("", ""), ("a", a), ("b", "struct B;"), ("c", "struct C;")]);
        assert_eq!(graph.lines("a"), ["a -> b c"]);
    }

    #[test]
    fn tests_and_declarations_do_not_count() {
        let a = "#[cfg(test)] use super::b::B; #[cfg(test)] fn f() { super::b::f() } struct A;";
        let graph = graph(&[("", ""), ("a", a), ("b", "use super::a::A; struct B;")]);
        assert!(graph.circles().is_empty());
    }

    #[test]
    fn module_inside_a_file_belongs_to_it() {
        let a = "mod inner { use super::super::b::B; }";
        let graph = graph(&[("", ""), ("a", a), ("b", "struct B;")]);
        assert_eq!(graph.lines("a"), ["a -> b"]);
    }

    #[test]
    fn checked_crates_are_as_the_table_says() {
        let wrong = violations(&crate::root()).expect("every file is Rust");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
