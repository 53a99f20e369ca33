/// The recipe for a divergence, followed with a made-up one: the squared Hellinger distance 1 − Σ √(p·q), with
/// dD/dq = −½·√(p / q). One function is all that the loss needs of it.

#include <gtest/gtest.h>
#include <torch/types.h>

#include "models/losses/distill_loss.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::int64_t kRows = 5;
constexpr std::int64_t kVocabulary = 11;
constexpr double kTemperature = 1.5;

Tensor squared_hellinger(Tensor& log_q, Tensor& log_p, const Tensor& q, double /*parameter*/) {
    log_q.sub_(log_p).mul_(-0.5).exp_().mul_(-0.5);
    log_p.reset();
    const Tensor mean = (q * log_q).sum(1, true);
    log_q.sub_(mean);
    return mean * 2 + 1;
}

struct Problem {
    Tensor logits;
    DistillTargets targets;
    Tensor buckets;  ///< the teacher's p
};

Problem make_problem(bool topk) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(3);
    Problem problem;
    problem.logits = torch::randn({kRows, kVocabulary}, generator, torch::kDouble);
    problem.targets.labels = torch::zeros({kRows}, torch::kLong);
    const Tensor teacher = torch::randn({kRows, kVocabulary}, generator, torch::kDouble);
    problem.buckets = torch::softmax(teacher / kTemperature, 1);
    if (!topk) {
        problem.targets.teacher_logits = teacher;
        return problem;
    }
    const auto [top, ids] = problem.buckets.topk(4, 1);
    const Tensor tail = 1 - top.sum(1, true);
    problem.buckets = torch::cat({top, tail}, 1);
    problem.targets.topk_ids = ids;
    problem.targets.topk_probabilities = top;
    problem.targets.tail_probability = tail.squeeze(1);
    problem.targets.negative_entropy = torch::xlogy(problem.buckets, problem.buckets).sum(1);
    return problem;
}

TEST(MadeUpDivergence, HasTheValueAndGradientOfItsDefinition) {
    for (const bool topk : {false, true}) {
        const Problem problem = make_problem(topk);
        DistillLossOptions options;
        options.temperature = kTemperature;
        options.divergence = Divergence{squared_hellinger};
        DistillLossGradients got;
        const DistillLossSums sums =
            distill_loss(problem.logits, torch::eye(kVocabulary, torch::kDouble), problem.targets, options, &got);

        const Tensor logits = problem.logits.clone().requires_grad_(true);
        Tensor q = torch::softmax(logits / kTemperature, 1);
        if (topk) {
            const Tensor top = q.gather(1, problem.targets.topk_ids);
            q = torch::cat({top, 1 - top.sum(1, true)}, 1);
        }
        const Tensor wanted = kTemperature * kTemperature * (1 - (problem.buckets * q).sqrt().sum(1)).sum();
        wanted.backward();
        EXPECT_NEAR(sums.kd, wanted.item<double>(), 1e-10) << topk;
        EXPECT_LT((got.hidden - logits.grad()).abs().max().item<double>(), 1e-10) << topk;
    }
}

}  // namespace
}  // namespace distilld::models
