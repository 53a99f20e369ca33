#include "server/worker/rollout/prompt_dataset.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace distilld {

namespace {

/// Each row with `more` values behind it.
std::vector<std::int32_t> widened(const std::vector<std::int32_t>& rows, std::uint32_t columns, std::uint32_t more,
                                  std::int32_t value) {
    std::vector<std::int32_t> wide;
    wide.reserve(rows.size() / columns * (std::size_t{columns} + more));
    for (auto row = rows.begin(); row != rows.end(); row += columns) {
        wide.insert(wide.end(), row, row + columns);
        wide.insert(wide.end(), more, value);
    }
    return wide;
}

class RoomyDataset final : public Dataset {
  public:
    RoomyDataset(std::shared_ptr<const Dataset> prompts, std::uint32_t more, const RolloutPlan& plan)
        : prompts_(std::move(prompts)), more_(more), plan_(plan) {}

    std::uint64_t row_count() const override { return prompts_->row_count(); }
    std::uint64_t token_count() const override { return prompts_->token_count(); }
    std::uint64_t tokens_read() const override { return prompts_->tokens_read(); }
    const std::string& hash() const override { return prompts_->hash(); }
    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        TokenBatch batch = prompts_->batch(number, rows);
        batch.input_ids = widened(batch.input_ids, batch.columns, more_, 0);
        batch.labels = widened(batch.labels, batch.columns, more_, kIgnoredLabel);
        batch.columns += more_;
        for (std::uint32_t row = 0; row < batch.rows; ++row) {
            if (!plan_.answers(number, row, rows[row])) {
                const auto begin = batch.labels.begin() + std::ptrdiff_t{row} * batch.columns;
                std::fill(begin, begin + batch.columns, kIgnoredLabel);
            }
        }
        return batch;
    }
    std::uint32_t row_length(std::uint64_t row) const override { return prompts_->row_length(row); }
    std::uint64_t target_tokens(std::uint64_t row) const override { return prompts_->target_tokens(row); }
    bool has_text() const override { return prompts_->has_text(); }

  private:
    std::shared_ptr<const Dataset> prompts_;
    std::uint32_t more_;
    RolloutPlan plan_;
};

}  // namespace

std::shared_ptr<const Dataset> with_room_for_answers(std::shared_ptr<const Dataset> prompts, std::uint32_t more,
                                                     const RolloutPlan& plan) {
    return std::make_shared<RoomyDataset>(std::move(prompts), more, plan);
}

}  // namespace distilld
