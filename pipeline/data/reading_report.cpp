#include "pipeline/data/reading_report.hpp"

#include <utility>

#include "base/format.hpp"

namespace distilld {

namespace {

/// 1234567 as "1.2 million".
std::string in_words(double count) {
    return count >= 1e6 ? formatted("%.1f million", count / 1e6) : formatted("%.0f", count);
}

std::string in_bytes(std::uint64_t bytes) {
    const auto number = static_cast<double>(bytes);
    return number >= 1e9 ? formatted("%.1f GB", number / 1e9) : formatted("%.1f MB", number / 1e6);
}

}  // namespace

ReadingReport::ReadingReport(std::string field, std::function<void(const std::string&)> on_info,
                             std::function<Clock::time_point()> now)
    : field_(std::move(field)), on_info_(std::move(on_info)), now_(std::move(now)), told_(now_()) {}

void ReadingReport::operator()(const ReadingProgress& progress) {
    const Clock::time_point now = now_();
    const std::chrono::duration<double> since = now - told_;
    if (since < kInterval) {
        return;
    }
    const double rate = static_cast<double>(progress.tokens - tokens_then_) / since.count();
    on_info_(field_ + ": " + std::to_string(static_cast<int>(progress.share * 100)) + "% of " +
             in_bytes(progress.total_bytes) + " read, " + in_words(rate) + " tokens/s on " +
             std::to_string(progress.threads) + (progress.threads == 1 ? " thread" : " threads"));
    told_ = now;
    tokens_then_ = progress.tokens;
}

}  // namespace distilld
