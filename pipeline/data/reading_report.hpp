#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "pipeline/data/dataset.hpp"

namespace distilld {

/// Reports the progress of reading a dataset at intervals: "/dataset/train: 34% of 10.2 GB read, 1.2 million tokens/s
/// on 8 threads". Short reading is not reported. One thread.
class ReadingReport {
  public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds kInterval{10};

    /// `field` (/dataset/train) names the dataset.
    ReadingReport(std::string field, std::function<void(const std::string&)> on_info,
                  std::function<Clock::time_point()> now = Clock::now);

    void operator()(const ReadingProgress& progress);

  private:
    std::string field_;
    std::function<void(const std::string&)> on_info_;
    std::function<Clock::time_point()> now_;
    Clock::time_point told_;
    std::uint64_t tokens_then_ = 0;
};

}  // namespace distilld
