#pragma once

namespace distilld {

/// Exit codes of distilld and distilld-worker.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;     ///< wrong command line or spec
inline constexpr int kInterrupted = 130;  ///< stopped on request, after a clean checkpoint

/// The same as text, at the end of the help and the manual pages of both programs.
inline constexpr const char* kExitCodesHelp =
    "Exit codes: 0 done, 1 failed, 2 wrong usage or spec, 130 interrupted after a clean checkpoint.";

}  // namespace distilld
