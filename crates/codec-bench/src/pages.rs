//! Pages to measure with: of any file, of a core dump, or the sample that is built in.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use elf::ElfStream;
use elf::abi::{ET_CORE, PT_LOAD};
use elf::endian::AnyEndian;
use page::{PAGE_BYTES, PageBytes};

/// Files of the corpus that are heaps: resident anonymous pages of a program.
pub const HEAPS: [&str; 11] =
    ["cc1plus", "rustc", "node", "java", "py_pandas", "sci_numpy", "redis", "postgres", "sqlite", "golang", "gnusort"];
/// The file of the corpus that belongs to no average.
pub const NOISE: &str = "random";
/// Averages: over the heaps of the corpus, and over everything but its noise.
pub const SETS: [&str; 2] = ["HEAP", "ALL"];

/// Neighbouring pages that are taken together where a file is sampled, as in the corpus.
const RUN_PAGES: u64 = 8;

/// Where the built-in pages come from, in their order, and how many there are of each: see its README.md.
const BUILT_IN: &[u8] = include_bytes!("../../codec/testdata/corpus.pages");
const BUILT_IN_NAMES: [&str; 15] = [
    "cc1plus",
    "elf_bin",
    "gnusort",
    "golang",
    "html",
    "java",
    "js_py_text",
    "node",
    "postgres",
    "py_pandas",
    "redis",
    "rustc",
    "sci_numpy",
    "sqlite",
    "src_text",
];
const BUILT_IN_PAGES: usize = 8;

const _: () = assert!(BUILT_IN.len() == BUILT_IN_NAMES.len() * BUILT_IN_PAGES * PAGE_BYTES);

/// The pages of one file.
#[derive(Debug)]
pub struct Source {
    /// Its name without directory and ending, or its path where that would name two.
    pub name: String,
    /// Pages that are not all zero: those need no codec.
    pub pages: Vec<PageBytes>,
    /// Pages left out because they are.
    pub zero_pages: u64,
    /// All that the file holds. Of more than were asked for a sample is taken.
    pub file_pages: u64,
}

/// A file that cannot be measured with.
#[derive(Debug)]
pub struct ReadError {
    path: PathBuf,
    reason: String,
}

impl ReadError {
    fn new(path: &Path, reason: impl fmt::Display) -> Self {
        Self { path: path.to_owned(), reason: reason.to_string() }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for ReadError {}

/// The sample that is built in: 120 pages of the corpus.
pub fn built_in() -> Vec<Source> {
    let pages = BUILT_IN.as_chunks::<PAGE_BYTES>().0.chunks(BUILT_IN_PAGES);
    let source = |(name, pages): (&str, &[[u8; PAGE_BYTES]])| Source {
        name: name.to_owned(),
        pages: pages.iter().map(|&bytes| PageBytes(bytes)).collect(),
        zero_pages: 0,
        file_pages: BUILT_IN_PAGES as u64,
    };
    BUILT_IN_NAMES.into_iter().zip(pages).map(source).collect()
}

/// Reads files, and of directories the files that end in `.pages`, or all if none does. Of each file `pages_max` pages at
/// most: runs of neighbours, evenly spaced.
pub fn read(paths: &[PathBuf], pages_max: u64) -> Result<Vec<Source>, ReadError> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() { files.extend(files_in(path)?) } else { files.push(path.clone()) }
    }
    let mut sources = Vec::new();
    for file in &files {
        sources.push(read_file(file, name_among(file, &files), pages_max)?);
    }
    if sources.iter().all(|source| source.pages.is_empty()) {
        let path = paths.first().map_or(Path::new("--pages"), PathBuf::as_path);
        return Err(ReadError::new(path, "no page that is not all zero"));
    }
    Ok(sources)
}

fn files_in(directory: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let entries = fs::read_dir(directory).map_err(|error| ReadError::new(directory, error))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    let is_pages = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "pages");
    if files.iter().any(is_pages) {
        files.retain(is_pages);
    }
    if files.is_empty() {
        return Err(ReadError::new(directory, "no files in this directory"));
    }
    files.sort();
    Ok(files)
}

/// The stem of the file, or its path if another file or an average has that name.
fn name_among(file: &Path, files: &[PathBuf]) -> String {
    let stem = file.file_stem().unwrap_or(file.as_os_str());
    let same = files.iter().filter(|other| other.file_stem() == Some(stem)).count();
    if same > 1 || SETS.iter().any(|set| stem == *set) {
        return file.display().to_string();
    }
    stem.display().to_string()
}

/// A part of a file that holds pages, one behind the other; the last may be cut short.
#[derive(Clone, Copy, Debug)]
struct Extent {
    offset: u64,
    bytes: u64,
}

impl Extent {
    fn pages(self) -> u64 {
        self.bytes.div_ceil(PAGE_BYTES as u64)
    }
}

fn read_file(path: &Path, name: String, pages_max: u64) -> Result<Source, ReadError> {
    let failed = |error: io::Error| ReadError::new(path, error);
    let metadata = fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ReadError::new(path, "neither a file nor a directory"));
    }
    let file = File::open(path).map_err(failed)?;
    let extents = core_segments(&file).unwrap_or_else(|| vec![Extent { offset: 0, bytes: metadata.len() }]);
    let file_pages = extents.iter().map(|extent| extent.pages()).sum();
    let mut source = Source { name, pages: Vec::new(), zero_pages: 0, file_pages };
    for index in sample(file_pages, pages_max) {
        let page = read_page(&file, &extents, index).map_err(failed)?;
        if page.0.iter().all(|byte| *byte == 0) {
            source.zero_pages += 1;
        } else {
            source.pages.push(page);
        }
    }
    Ok(source)
}

/// The memory that a core dump holds; `None` for any other file.
fn core_segments(file: &File) -> Option<Vec<Extent>> {
    let stream = ElfStream::<AnyEndian, _>::open_stream(file).ok()?;
    let loaded = stream.segments().iter().filter(|segment| segment.p_type == PT_LOAD);
    let extents = loaded.map(|segment| Extent { offset: segment.p_offset, bytes: segment.p_filesz }).collect();
    (stream.ehdr.e_type == ET_CORE).then_some(extents)
}

/// Which of `count` pages to take if `max` are wanted.
fn sample(count: u64, max: u64) -> Vec<u64> {
    if count <= max {
        return (0..count).collect();
    }
    let run = RUN_PAGES.min(max);
    let runs = max / run;
    let starts = (0..runs).map(|at| at * (count - run) / (runs - 1).max(1));
    starts.flat_map(|start| start..start + run).collect()
}

/// One page; what lies behind the end of its extent, or of a file that was cut short, is zero.
fn read_page(file: &File, extents: &[Extent], mut index: u64) -> io::Result<PageBytes> {
    let mut page = PageBytes::ZERO;
    for extent in extents {
        if index < extent.pages() {
            let start = index * PAGE_BYTES as u64;
            let bytes = (extent.bytes - start).min(PAGE_BYTES as u64) as usize;
            let mut filled = 0;
            while filled < bytes {
                match file.read_at(&mut page.0[filled..bytes], extent.offset + start + filled as u64)? {
                    0 => break,
                    more => filled += more,
                }
            }
            break;
        }
        index -= extent.pages();
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own, gone with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("pleat-pages-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str, content: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// So many pages, each of one byte: 1, 2, 3 and so on.
    fn numbered(pages: usize) -> Vec<u8> {
        (0..pages * PAGE_BYTES).map(|at| (at / PAGE_BYTES + 1) as u8).collect()
    }

    fn first_bytes(source: &Source) -> Vec<u8> {
        source.pages.iter().map(|page| page.0[0]).collect()
    }

    #[test]
    fn a_file_is_cut_into_pages_and_the_last_is_filled_up() {
        let folder = Folder::new("cut");
        let mut content = numbered(3);
        content.truncate(2 * PAGE_BYTES + 5);
        content[..PAGE_BYTES].fill(0);
        let sources = read(&[folder.file("some.dat", &content)], 100).unwrap();
        let source = &sources[0];
        assert_eq!((source.name.as_str(), source.zero_pages, source.file_pages), ("some", 1, 3));
        assert_eq!(first_bytes(source), [2, 3]);
        assert_eq!(source.pages[1].0[4..7], [3, 0, 0]);
    }

    #[test]
    fn of_a_directory_the_pages_are_taken_if_there_are_any() {
        let folder = Folder::new("directory");
        folder.file("README.md", b"text");
        assert_eq!(read(std::slice::from_ref(&folder.0), 10).unwrap()[0].name, "README");
        folder.file("b.pages", &numbered(1));
        folder.file("a.pages", &numbered(1));
        let names = |paths: &[PathBuf]| read(paths, 10).unwrap().into_iter().map(|source| source.name);
        assert!(names(std::slice::from_ref(&folder.0)).eq(["a", "b"]));
        let (one, other) = (folder.file("x/core", &numbered(1)), folder.file("y/core", &numbered(1)));
        assert!(names(&[one.clone(), other.clone()]).eq([one, other].map(|path| path.display().to_string())));
    }

    #[test]
    fn a_sample_is_of_runs_from_start_to_end() {
        assert_eq!(sample(20, 20).len(), 20);
        let pages = sample(1000, 24);
        assert_eq!(pages.len(), 24);
        assert_eq!((pages[0], pages[7], pages[8], pages[23]), (0, 7, 496, 999));
        assert_eq!(sample(1000, 3), [0, 1, 2]);
        assert_eq!(sample(9, 8), (0..8).collect::<Vec<_>>());
    }

    /// A core dump of two segments, as small as they come.
    fn core(kind: u16) -> Vec<u8> {
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        file.extend(kind.to_le_bytes());
        file.extend([62, 0, 1, 0, 0, 0]);
        // No entry, program headers behind this one, no sections; then sizes and numbers of the tables.
        for number in [0_u64, 64, 0] {
            file.extend(number.to_le_bytes());
        }
        file.extend([0; 4]);
        file.extend([64_u16, 56, 2, 64, 0, 0].iter().flat_map(|number| number.to_le_bytes()));
        for (offset, bytes) in [(PAGE_BYTES, PAGE_BYTES), (3 * PAGE_BYTES, PAGE_BYTES + 1)] {
            file.extend([1, 0, 0, 0, 6, 0, 0, 0]);
            for number in [offset, 0, 0, bytes, bytes, PAGE_BYTES] {
                file.extend((number as u64).to_le_bytes());
            }
        }
        file.resize(PAGE_BYTES, 0);
        file.extend(numbered(4));
        file
    }

    #[test]
    fn of_a_core_dump_the_memory_is_taken() {
        let folder = Folder::new("core");
        let sources = read(&[folder.file("core", &core(ET_CORE)), folder.file("program", &core(2))], 100).unwrap();
        assert_eq!(first_bytes(&sources[0]), [1, 3, 4]);
        assert_eq!(sources[0].pages[2].0[..2], [4, 0]);
        assert_eq!(first_bytes(&sources[1]), [0x7f, 1, 2, 3, 4]);
    }

    #[test]
    fn what_holds_no_pages_is_refused() {
        let folder = Folder::new("refused");
        let empty = folder.file("empty", b"");
        let zeros = folder.file("zeros", &[0; 5000]);
        let nothing = folder.0.join("nothing");
        for (path, part) in
            [(empty, "all zero"), (zeros, "all zero"), (nothing, "No such file"), ("/dev/null".into(), "neither")]
        {
            let error = read(std::slice::from_ref(&path), 10).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(path.to_str().unwrap()), "{error}");
        }
    }
}
