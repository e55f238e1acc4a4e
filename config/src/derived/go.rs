//! `@go`: the module proxies and the checksum database that go is configured with.
//!
//! Read: `GOPROXY` and `GOSUMDB`, from the environment, from the file of `go env -w`, and from what go answers. Where a
//! module itself lies, which `direct` and `GOPRIVATE` lead to, is not known before go asks. (`go help environment`, The
//! Go Modules Reference: Environment variables.)

use crate::derived::page::Page;
use crate::derived::{Fault, Misread, Reading, Setting, WhyNot};
use crate::source::Source;

/// The two variables, as far as they are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoVariables {
    /// `GOPROXY`: URLs, `direct` and `off`, with `,` or `|` between them.
    pub proxy: Option<Setting>,
    /// `GOSUMDB`: a name, perhaps with a key and a URL, or `off`.
    pub sum_db: Option<Setting>,
}

impl GoVariables {
    /// These, and what is not among them from `others`.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self { proxy: self.proxy.or(others.proxy), sum_db: self.sum_db.or(others.sum_db) }
    }

    /// Whether both are known.
    #[must_use]
    pub fn are_complete(&self) -> bool {
        self.proxy.is_some() && self.sum_db.is_some()
    }

    /// What go answered to `go env GOPROXY GOSUMDB`: a line for each.
    #[must_use]
    pub fn of_answer(answer: &str, words: &str) -> Self {
        let mut lines = answer.lines().map(|line| {
            let value = line.trim();
            (!value.is_empty()).then(|| Setting { value: value.to_owned(), source: Source::Tool(words.into()) })
        });
        Self { proxy: lines.next().flatten(), sum_db: lines.next().flatten() }
    }
}

/// Reads the file of `go env -w`: `NAME=value` lines.
#[must_use]
pub fn parse(page: &Page) -> GoVariables {
    let mut variables = GoVariables::default();
    for (offset, line) in page.lines() {
        let Some((name, value)) = line.split_once('=') else { continue };
        let setting = || Some(Setting { value: value.to_owned(), source: page.source(offset) });
        // The last one counts; an empty value is go's default.
        match name {
            "GOPROXY" => variables.proxy = setting().filter(|_| !value.is_empty()),
            "GOSUMDB" => variables.sum_db = setting().filter(|_| !value.is_empty()),
            _ => {}
        }
    }
    variables
}

/// The hosts of both.
///
/// # Errors
///
/// One of the URLs cannot be read.
pub fn resolve(variables: &GoVariables) -> Result<Reading, Misread> {
    let mut reading = Reading { takes_default: !variables.are_complete(), ..Reading::default() };
    if let Some(Setting { value, source }) = &variables.proxy {
        for word in value.split([',', '|']).map(str::trim) {
            match word {
                "" | "off" => {}
                "direct" => {
                    let why = "`direct`: where a module itself lies is not known before go asks";
                    reading.leave_out(WhyNot::Elsewhere(why), || source.clone());
                }
                // Without a scheme it is `https`.
                url if !url.contains("://") => reading.take_url(&format!("https://{url}"), || source.clone())?,
                url => reading.take_url(url, || source.clone())?,
            }
        }
    }
    if let Some(Setting { value, source }) = &variables.sum_db
        && value != "off"
    {
        let mut words = value.split_whitespace();
        let name = words.next().unwrap_or_default().split('+').next().unwrap_or_default();
        let url = match words.next() {
            Some(url) if url.contains("://") => url.to_owned(),
            Some(url) => format!("https://{url}"),
            None => format!("https://{name}"),
        };
        if words.next().is_some() {
            return Err(Misread { place: source.clone(), fault: Fault::NotUrl });
        }
        reading.take_url(&url, || source.clone())?;
    }
    Ok(reading)
}
