#include "pipeline/graph/nonfinite_steps.hpp"

#include <chrono>

#include "base/format.hpp"

namespace distilld {
namespace {

constexpr std::chrono::seconds kWarningInterval{10};

std::string number_text(double number) {
    return formatted("%.4g", number);
}

/// The finding in words: "its loss is nan, its gradient norm is inf".
std::string seen(const NonfiniteSteps::Step& step) {
    return "its loss is " + number_text(step.loss) + ", its gradient norm is " + number_text(step.grad_norm);
}

}  // namespace

NonfiniteSteps::Verdict NonfiniteSteps::judge(const Step& step) {
    Verdict verdict;
    if (step.finite) {
        in_a_row_ = 0;
        return verdict;
    }
    ++in_a_row_;
    ++total_;
    if (in_a_row_ >= max_in_a_row_) {
        verdict.failure =
            invalid_input("/training/max_nonfinite_steps: " + counted(in_a_row_, "step") +
                          " in a row had to be skipped, the last of them step " + std::to_string(step.number) + ": " +
                          seen(step) + ". The weights are those of step " + std::to_string(step.number - in_a_row_) +
                          ". Lower training.learning_rate (it was " + number_text(step.learning_rate) +
                          "), warm up longer, or look for a damaged student, teacher or row of data");
        return verdict;
    }
    if (!warned_at_ || step.at - *warned_at_ >= kWarningInterval) {
        warned_at_ = step.at;
        verdict.warning = "step " + std::to_string(step.number) + " was skipped: " + seen(step) + " (" +
                          counted(total_, "step") + " skipped so far, " + std::to_string(in_a_row_) +
                          " in a row; the job fails at " + std::to_string(max_in_a_row_) + " in a row)";
    }
    return verdict;
}

}  // namespace distilld
