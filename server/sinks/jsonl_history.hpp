#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.hpp"

namespace distilld::sinks {

/// What stays of a metrics file that a run goes on with.
struct JsonlHistory {
    std::uint64_t kept_bytes = 0;  ///< from the beginning
    std::string kept_lines;  ///< of what lies behind them, such as a checkpoint that was written behind later steps
};

/// Reads the file that a run, whose results go to `output`, wrote before: each line of a step up to `first_step` stays.
/// Of step 0 nothing does. An error (invalid_input) when the file holds something else, or is of a run with another
/// output; `overwrite`: then nothing of it stays.
[[nodiscard]] Result<JsonlHistory> read_jsonl_history(const std::filesystem::path& file, const std::string& output,
                                                      std::uint64_t first_step, bool overwrite);

}  // namespace distilld::sinks
