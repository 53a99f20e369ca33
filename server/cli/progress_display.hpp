#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "pipeline/core/worker_events.hpp"
#include "server/cli/terminal.hpp"

namespace distilld::cli {

/// "step 40/100 KD loss 2.3456 nats/token lr 1.0e-04 | 12.3k tok/s | ETA 1m05s | stall 0.4%"
[[nodiscard]] std::string progress_line(const ProgressEvent& progress);

/// The same behind a bar, cut to `width` columns.
[[nodiscard]] std::string progress_bar(const ProgressEvent& progress, unsigned width);

/// The figures of a finished run, several lines.
[[nodiscard]] std::string summary(const FinishedEvent& finished);

/// "45s", "3m07s", "2h05m"; "?" for what is not a time.
[[nodiscard]] std::string duration_text(double seconds);

/// "950", "12.3k", "4.56M"
[[nodiscard]] std::string count_text(double count);

/// Shows a run: one line that is redrawn on a terminal, plain lines otherwise (progress at most once a second, the last
/// step always). One thread.
class ProgressDisplay {
  public:
    using Write = std::function<void(const std::string&)>;

    /// `write` takes bytes for the screen, which is a terminal where it has a `width`, or for a file.
    ProgressDisplay(Write write, TerminalWidth width);

    void show(const WorkerEvent& event, std::chrono::steady_clock::time_point now);
    /// A line of text that stays, above the bar.
    void line(const std::string& text);
    /// Leaves the bar as it is and starts a new line.
    void finish();

  private:
    Write write_;
    TerminalWidth width_;
    std::string bar_;  ///< what the terminal's last line shows
    std::optional<std::chrono::steady_clock::time_point> last_shown_;
};

}  // namespace distilld::cli
