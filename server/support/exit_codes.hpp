#pragma once

namespace distilld {

/// Exit codes of distilld and distilld-worker.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;     ///< wrong command line or spec
inline constexpr int kInterrupted = 130;  ///< stopped on request, after a clean checkpoint

}  // namespace distilld
