#include "pipeline/teacher/replica_comparison.hpp"

#include <utility>

#include "pipeline/teacher/teacher_fingerprint.hpp"

namespace distilld {
namespace {

class ComparingDecoder final : public EncodedAnswer::Decoder {
  public:
    ComparingDecoder(EncodedAnswer first, EncodedAnswer second, ReplicaDifference numbers,
                     std::shared_ptr<ReplicaComparisons> comparisons)
        : first_(std::move(first)),
          second_(std::move(second)),
          numbers_(std::move(numbers)),
          comparisons_(std::move(comparisons)) {}
    ~ComparingDecoder() override { comparisons_->end(std::move(found_)); }

    FetchResult<TeacherTargets> decode() override {
        FetchResult<TeacherTargets> answer = first_.decode();
        const FetchResult<TeacherTargets> other = second_.decode();
        if (!answer || !other || answer->kind != other->kind || answer->width != other->width) {
            return answer;  // a replica that answers in another form fails its own requests
        }
        const AnswerDifference difference = difference_of(*answer, *other);
        if (difference.of_other_models()) {
            found_ = std::move(numbers_);
            found_->text = difference.text(answer->kind);
        }
        return answer;
    }

  private:
    EncodedAnswer first_;
    EncodedAnswer second_;
    ReplicaDifference numbers_;
    std::shared_ptr<ReplicaComparisons> comparisons_;
    std::optional<ReplicaDifference> found_;
};

}  // namespace

bool ReplicaComparisons::begin() {
    const std::lock_guard lock(mutex_);
    return !std::exchange(under_way_, true);
}

void ReplicaComparisons::end(std::optional<ReplicaDifference> found) {
    const std::lock_guard lock(mutex_);
    under_way_ = false;
    if (found) {
        found_ = std::move(found);
    }
}

std::optional<ReplicaDifference> ReplicaComparisons::take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(found_, std::nullopt);
}

EncodedAnswer compared_answer(EncodedAnswer first, EncodedAnswer second, ReplicaDifference numbers,
                              std::shared_ptr<ReplicaComparisons> comparisons) {
    const std::uint64_t wire_bytes = first.wire_bytes();
    return {std::make_unique<ComparingDecoder>(std::move(first), std::move(second), std::move(numbers),
                                               std::move(comparisons)),
            wire_bytes};
}

}  // namespace distilld
