#include "pipeline/teacher/rollout/replayed_rollouts.hpp"

#include <utility>

namespace distilld {

namespace {

RolloutCodecOptions sizes_of(std::uint32_t max_tokens) {
    RolloutCodecOptions options;
    options.max_tokens = max_tokens;
    return options;
}

class ReplayedRollouts final : public TeacherSource {
  public:
    ReplayedRollouts(std::shared_ptr<const KeptRollouts> kept, std::string name, std::uint32_t max_tokens,
                     std::uint32_t vocabulary)
        : kept_(std::move(kept)), name_(std::move(name)), sizes_(sizes_of(max_tokens)), vocabulary_(vocabulary) {}

    std::size_t endpoint_count() const override { return 1; }
    const std::string& endpoint_name(std::size_t) const override { return name_; }
    boost::asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t) override {
        TeacherInfo info;
        info.description = sizes_.description();
        co_return info;
    }
    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        return sizes_.answer_size(rows, columns);
    }
    boost::asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t, std::shared_ptr<const TokenBatch> tokens,
                                                             std::chrono::nanoseconds) override {
        if (!kept_->has(tokens->number)) {
            co_return FetchError{
                FailureKind::rejected,
                name_ + " has no answers of micro-batch " + std::to_string(tokens->number) + ": it is of a shorter run",
                std::nullopt};
        }
        co_return kept_answer(kept_, std::move(tokens), vocabulary_);
    }
    bool is_slow_by_chance() const override { return false; }
    void close() override {}

  private:
    std::shared_ptr<const KeptRollouts> kept_;
    std::string name_;
    RolloutCodec sizes_;
    std::uint32_t vocabulary_;
};

}  // namespace

std::unique_ptr<TeacherSource> replayed_rollouts(std::shared_ptr<const KeptRollouts> kept, std::string name,
                                                 std::uint32_t max_tokens, std::uint32_t vocabulary) {
    return std::make_unique<ReplayedRollouts>(std::move(kept), std::move(name), max_tokens, vocabulary);
}

}  // namespace distilld
