#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/core/worker_events.hpp"
#include "server/cli/terminal.hpp"

namespace distilld::cli {

/// "step 40/100 KD loss 2.3456 nats/token lr 1.0e-04 | 12.3k tok/s | ETA 1m05s | stall 0.4%"
[[nodiscard]] std::string progress_line(const ProgressEvent& progress);

/// The same after a bar, cut to `width` columns.
[[nodiscard]] std::string progress_bar(const ProgressEvent& progress, unsigned width);

/// Of a share of accepted tokens: "81.2% (3.5 tokens per teacher pass with 4 drafted)"
[[nodiscard]] std::string acceptance_text(double rate);

/// Of each rank, if there are several: "host: 6.2k tok/s, waited for input 0.12 s, for other ranks 3.40 s"
[[nodiscard]] std::vector<std::string> rank_lines(const ProgressEvent& progress);

/// The figures of a finished run, in several lines.
[[nodiscard]] std::string summary(const FinishedEvent& finished);

/// "45s", "3m07s", "2h05m"; "?" if it is not a time.
[[nodiscard]] std::string duration_text(double seconds);

/// "950", "12.3k", "4.56M"
[[nodiscard]] std::string count_text(double count);

/// Shows a run: one redrawn line on a terminal, plain lines otherwise (progress at most once per second, and the last
/// step). One thread.
class ProgressDisplay {
  public:
    using Write = std::function<void(const std::string&)>;

    /// `write` takes bytes for a file or, if `width` returns a width, for a terminal.
    ProgressDisplay(Write write, TerminalWidth width);

    void show(const WorkerEvent& event, std::chrono::steady_clock::time_point now);
    /// Prints a line that stays, above the bar.
    void line(const std::string& text);
    /// Keeps the bar and starts a new line.
    void finish();

  private:
    Write write_;
    TerminalWidth width_;
    std::string bar_;  ///< the terminal's last line
    std::optional<std::chrono::steady_clock::time_point> last_shown_;
};

}  // namespace distilld::cli
