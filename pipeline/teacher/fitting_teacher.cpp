#include "pipeline/teacher/fitting_teacher.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "pipeline/core/vocabulary_fit.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

class FittingDecoder final : public EncodedAnswer::Decoder {
  public:
    FittingDecoder(std::string name, EncodedAnswer answer, std::uint32_t vocabulary)
        : name_(std::move(name)), answer_(std::move(answer)), vocabulary_(vocabulary) {}

    FetchResult<TeacherTargets> decode() override {
        FetchResult<TeacherTargets> targets = answer_.decode();
        if (!targets) {
            return targets;
        }
        Result<TeacherTargets> fitted = fit_vocabulary(std::move(*targets), vocabulary_);
        if (!fitted) {
            return FetchError{FailureKind::bad_response, name_ + ": " + fitted.error().message, std::nullopt, true};
        }
        return std::move(*fitted);
    }

  private:
    std::string name_;
    EncodedAnswer answer_;
    std::uint32_t vocabulary_;
};

class FittingTeacher final : public TeacherSource {
  public:
    FittingTeacher(std::unique_ptr<TeacherSource> teacher, std::uint32_t vocabulary, std::uint64_t known)
        : teacher_(std::move(teacher)), vocabulary_(vocabulary), known_(known) {}

    std::size_t endpoint_count() const override { return teacher_->endpoint_count(); }
    const std::string& endpoint_name(std::size_t endpoint) const override { return teacher_->endpoint_name(endpoint); }
    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t vocabulary_size) override {
        return teacher_->probe(vocabulary_size);
    }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        AnswerSize size = teacher_->answer_size(rows, columns);
        size.decode_bytes += size.held_bytes;  // rows are copied
        return size;
    }

    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds deadline) override {
        const auto largest = std::max_element(tokens->input_ids.begin(), tokens->input_ids.end());
        if (known_ != 0 && largest != tokens->input_ids.end() && static_cast<std::int64_t>(known_) <= *largest) {
            co_return FetchError{FailureKind::rejected,
                                 endpoint_name(endpoint) + ": token id " + std::to_string(*largest) +
                                     " of the data is outside the teacher's vocabulary of " + std::to_string(known_),
                                 std::nullopt};
        }
        FetchResult<EncodedAnswer> answer = co_await teacher_->fetch(endpoint, std::move(tokens), deadline);
        if (!answer) {
            co_return answer;
        }
        const std::uint64_t wire_bytes = answer->wire_bytes();
        auto decoder = std::make_unique<FittingDecoder>(endpoint_name(endpoint), std::move(*answer), vocabulary_);
        co_return EncodedAnswer(std::move(decoder), wire_bytes);
    }

    std::uint64_t bytes_received() const override { return teacher_->bytes_received(); }
    WireTraffic traffic(std::size_t endpoint) const override { return teacher_->traffic(endpoint); }
    bool is_slow_by_chance() const override { return teacher_->is_slow_by_chance(); }
    void expect_batches(std::uint32_t rows, std::uint32_t columns) override { teacher_->expect_batches(rows, columns); }
    void set_concurrency_limits(const ConcurrencyLimits& limits) override { teacher_->set_concurrency_limits(limits); }
    HeadFetchCounters head_fetch() const override { return teacher_->head_fetch(); }
    std::optional<StoreCounters> store() const override { return teacher_->store(); }
    void close() override { teacher_->close(); }
    asio::awaitable<void> settle() override { return teacher_->settle(); }

  private:
    std::unique_ptr<TeacherSource> teacher_;
    std::uint32_t vocabulary_;
    std::uint64_t known_;
};

}  // namespace

std::unique_ptr<TeacherSource> make_fitting_teacher(std::unique_ptr<TeacherSource> teacher, std::uint32_t vocabulary,
                                                    std::uint64_t known) {
    return std::make_unique<FittingTeacher>(std::move(teacher), vocabulary, known);
}

TeacherInfo fitted_info(TeacherInfo info, std::uint32_t vocabulary) {
    if (info.kind == TeacherTargets::Kind::logits) {
        info.width = vocabulary;
    } else if (info.kind == TeacherTargets::Kind::topk) {
        info.width = std::min(info.width, vocabulary);
        info.top_k = std::min(info.top_k, vocabulary);
    }
    if (info.head) {
        info.head = std::make_shared<const TeacherHead>(fit_head(*info.head, vocabulary));
    }
    info.vocabulary_size = vocabulary;
    return info;
}

}  // namespace distilld
