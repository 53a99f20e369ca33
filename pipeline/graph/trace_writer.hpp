#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/error.hpp"
#include "base/time.hpp"
#include "pipeline/core/stage.hpp"

namespace distilld {

/// A timeline of the stages as Chrome trace-event JSON (opens in Perfetto and chrome://tracing). Written as it comes,
/// so a killed run leaves a usable file (the format allows the closing bracket to be missing). One thread.
class TraceWriter {
  public:
    virtual ~TraceWriter() = default;
    /// A span on the stage's track, in the graph's time (steady_time.hpp). `micro_batch` is shown as an argument.
    virtual void span(Stage stage, std::string_view name, Instant begin, Instant end, std::uint64_t micro_batch) = 0;
    /// A span that may overlap others of its stage (a request); the writer finds a free lane "teacher N" for it.
    virtual void overlapping_span(Stage stage, std::string_view name, Instant begin, Instant end,
                                  std::uint64_t micro_batch) = 0;
};

Result<std::unique_ptr<TraceWriter>> make_trace_writer(const std::filesystem::path& file);

}  // namespace distilld
