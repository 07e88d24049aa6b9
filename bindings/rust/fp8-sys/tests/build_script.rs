// SPDX-License-Identifier: Apache-2.0
#[allow(dead_code)]
#[path = "../build.rs"]
mod build;

#[test]
fn folders_of_pkg_config_are_unescaped() {
    assert_eq!(build::unescape(r"/opt/my\ fp8/lib"), "/opt/my fp8/lib");
    assert_eq!(build::unescape(r"/a\\b\(1\)"), r"/a\b(1)");
    assert_eq!(build::unescape("/usr/lib"), "/usr/lib");
}

#[test]
fn an_empty_variable_is_as_unset() {
    assert_eq!(build::given(Some(String::new())), None);
    assert_eq!(build::given(Some("/opt/lib".into())).as_deref(), Some("/opt/lib"));
    assert_eq!(build::given(None), None);
}

#[test]
fn a_folder_without_the_library_is_named_with_its_source() {
    let why = build::checked("/nonexistent".into(), "FP8_LIB_DIR").unwrap_err();
    assert!(
        why.starts_with("FP8_LIB_DIR is \"/nonexistent\", where no libfp8.so is"),
        "{why}"
    );
    let why = build::checked("build/lib".into(), "FP8_LIB_DIR").unwrap_err();
    assert!(why.contains("an absolute path is wanted"), "{why}");
    let folder = std::env::temp_dir().join(format!("fp8_build_script_{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("libfp8.so"), "").unwrap();
    let found = build::checked(folder.to_str().unwrap().into(), "FP8_LIB_DIR");
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(found.as_deref(), Ok(folder.to_str().unwrap()));
}
