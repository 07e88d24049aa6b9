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
