#include "pipeline/core/ranks/rank_rules.hpp"

namespace distilld {

std::optional<RankConflict> conflict_of_ranks(const StudentSpec& student, const TrainingSpec& training,
                                              std::uint32_t ranks) {
    if (ranks <= 1) {
        return std::nullopt;
    }
    const std::string count = std::to_string(ranks) + " ranks";
    if (training.gradient_groups % ranks != 0) {
        return RankConflict{"/training/gradient_groups", "is " + std::to_string(training.gradient_groups) +
                                                             ", but must be a multiple of the " + count +
                                                             ", which sum equal parts of the groups"};
    }
    if (!training.micro_batches_auto && training.micro_batches < ranks) {
        return RankConflict{"/training/micro_batches", "is " + std::to_string(training.micro_batches) + ", but " +
                                                           count + " need at least one each"};
    }
    if (student.format == StudentFormat::torchscript) {
        return RankConflict{"/student/format", "several ranks train language models only"};
    }
    return std::nullopt;
}

}  // namespace distilld
