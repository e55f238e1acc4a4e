//! The built-in presets, each with where its hosts are documented and when that was looked up.
//!
//! To add one: a service that many programs use and that is no package registry (those are derived from the machine's own
//! configuration). Every host exactly, from the vendor's documentation or source, with the ports that it serves; none that
//! only telemetry needs, and none on which strangers publish under a name of their own, unless the service is that.

/// A named list of rules that netbox brings.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The name, without its `@`.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Where the hosts are documented.
    pub sources: &'static [&'static str],
    /// The day on which that was looked up, as `2026-12-01`.
    pub checked: &'static str,
    /// Its allow rules.
    pub rules: &'static [&'static str],
}

/// All of them, by name.
pub const BUILTIN: &[Builtin] = &[
    Builtin {
        name: "anthropic",
        about: "the Claude API, and Claude Code: sign-in and updates",
        sources: &["https://code.claude.com/docs/en/network-config"],
        checked: "2026-12-01",
        rules: &["api.anthropic.com:443", "claude.ai:443", "platform.claude.com:443", "downloads.claude.ai:443"],
    },
    Builtin {
        name: "bitbucket",
        about: "Bitbucket Cloud: git over HTTPS and ssh, the API",
        sources: &[
            "https://support.atlassian.com/bitbucket-cloud/docs/configure-ssh-and-two-step-verification/",
            "https://community.atlassian.com/forums/Bitbucket-articles/Upcoming-change-to-Bitbucket-Cloud-SSH-access-move-from/ba-p/3234032",
        ],
        checked: "2026-12-01",
        rules: &[
            "bitbucket.org",
            // Until all remotes have moved to the host below it.
            "bitbucket.org:22",
            "ssh.bitbucket.org:22",
            "tcp://altssh.bitbucket.org:443",
            "api.bitbucket.org:443",
        ],
    },
    Builtin {
        name: "codeberg",
        about: "Codeberg: git over HTTPS and ssh, the API, downloads",
        sources: &["https://docs.codeberg.org/security/ssh-fingerprint/"],
        checked: "2026-12-01",
        rules: &["codeberg.org", "codeberg.org:22"],
    },
    Builtin {
        name: "gemini",
        about: "the Gemini API, and Gemini CLI with its sign-in",
        sources: &[
            "https://ai.google.dev/api",
            "https://github.com/google-gemini/gemini-cli/blob/main/packages/core/src/code_assist/server.ts",
            "https://developers.google.com/identity/protocols/oauth2/native-app",
        ],
        checked: "2026-12-01",
        rules: &[
            "generativelanguage.googleapis.com:443",
            "cloudcode-pa.googleapis.com:443",
            "accounts.google.com:443",
            "oauth2.googleapis.com:443",
        ],
    },
    Builtin {
        name: "github",
        about: "GitHub: git over HTTPS and ssh, the API, archives, raw files, release downloads, LFS",
        sources: &[
            "https://docs.github.com/en/actions/reference/runners/self-hosted-runners",
            "https://docs.github.com/en/authentication/troubleshooting-ssh/using-ssh-over-the-https-port",
            "https://docs.github.com/en/copilot/reference/copilot-allowlist-reference",
        ],
        checked: "2026-12-01",
        rules: &[
            "github.com",
            "github.com:22",
            "tcp://ssh.github.com:443",
            "api.github.com:443",
            "uploads.github.com:443",
            "codeload.github.com:443",
            "raw.githubusercontent.com:443",
            // Release downloads: the first of these since 2025, the others before.
            "release-assets.githubusercontent.com:443",
            "objects.githubusercontent.com:443",
            "objects-origin.githubusercontent.com:443",
            "github-releases.githubusercontent.com:443",
            "lfs.github.com:443",
            "github-cloud.githubusercontent.com:443",
            "github-cloud.s3.amazonaws.com:443",
        ],
    },
    Builtin {
        name: "gitlab",
        about: "GitLab.com: git over HTTPS and ssh, the API, downloads",
        sources: &["https://docs.gitlab.com/user/gitlab_com/"],
        checked: "2026-12-01",
        rules: &["gitlab.com", "gitlab.com:22", "tcp://altssh.gitlab.com:443"],
    },
    Builtin {
        name: "openai",
        about: "the OpenAI API, and Codex with its sign-in",
        sources: &[
            "https://platform.openai.com/docs/api-reference/introduction",
            "https://github.com/openai/codex/blob/main/codex-rs/login/src/server.rs",
        ],
        checked: "2026-12-01",
        rules: &["api.openai.com:443", "auth.openai.com:443", "chatgpt.com:443"],
    },
];
