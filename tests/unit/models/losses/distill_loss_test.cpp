#include "models/losses/distill_loss.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::int64_t kRows = 10;
constexpr std::int64_t kHidden = 6;
constexpr std::int64_t kIds = 23;
constexpr std::int64_t kTop = 4;
constexpr std::int64_t kTeacherHidden = 9;

enum class TeacherKind { none, topk, full, hidden };

const auto kDoubles = torch::TensorOptions().dtype(torch::kDouble);

/// Random inputs in fp64, and the teacher's distribution at temperature 1.
struct Problem {
    Tensor hidden, head, labels, teacher_hidden, teacher_head, teacher_logits, top_ids, top_log_p, log_tail;
};

Problem make_problem() {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(7);
    Problem problem;
    problem.hidden = torch::randn({kRows, kHidden}, generator, kDoubles);
    problem.head = torch::randn({kIds, kHidden}, generator, kDoubles);
    problem.labels = torch::randint(0, kIds, {kRows}, generator, torch::kLong);
    problem.teacher_hidden = torch::randn({kRows, kTeacherHidden}, generator, kDoubles);
    problem.teacher_head = 0.7 * torch::randn({kIds, kTeacherHidden}, generator, kDoubles);
    problem.teacher_logits = problem.teacher_hidden.mm(problem.teacher_head.t());
    const Tensor log_p = torch::log_softmax(problem.teacher_logits, 1);
    const auto [top, ids] = log_p.topk(kTop, 1);
    problem.top_ids = ids;
    problem.top_log_p = top;
    problem.log_tail = torch::log(1 - top.exp().sum(1));
    return problem;
}

/// Bucket probabilities at temperature T [n, k + 1] by the formula in topk_targets.hpp.
Tensor tempered_buckets(const Problem& problem, double temperature) {
    const double others = kIds - kTop;
    const Tensor top = (problem.top_log_p / temperature).exp();
    const Tensor tail = others * torch::pow(problem.log_tail.exp() / others, 1 / temperature);
    const Tensor all = torch::cat({top, tail.unsqueeze(1)}, 1);
    return all / all.sum(1, true);
}

DistillTargets make_targets(const Problem& problem, TeacherKind teacher, double temperature) {
    DistillTargets targets;
    targets.labels = problem.labels;
    if (teacher == TeacherKind::full) {
        targets.teacher_logits = problem.teacher_logits;
    } else if (teacher == TeacherKind::hidden) {
        targets.teacher_hidden = problem.teacher_hidden;
        targets.teacher_head = problem.teacher_head;
    } else if (teacher == TeacherKind::topk) {
        const Tensor p = tempered_buckets(problem, temperature);
        targets.topk_ids = problem.top_ids;
        targets.topk_probabilities = p.slice(1, 0, kTop);
        targets.tail_probability = p.select(1, kTop);
        targets.negative_entropy = (p * p.log()).sum(1);
    }
    return targets;
}

/// The definition, for autograd.
struct Reference {
    double loss = 0, kd = 0, ce = 0;
    Tensor hidden_gradient, head_gradient;
};

Reference reference(const Problem& problem, TeacherKind teacher, double kd_ratio, double temperature, double scale) {
    const Tensor hidden = problem.hidden.clone().requires_grad_(true);
    const Tensor head = problem.head.clone().requires_grad_(true);
    const Tensor logits = hidden.mm(head.t());
    const Tensor ce = -torch::log_softmax(logits, 1).gather(1, problem.labels.unsqueeze(1)).sum();
    Tensor kl = torch::zeros({}, kDoubles);
    const Tensor log_q = torch::log_softmax(logits / temperature, 1);
    if (teacher == TeacherKind::full || teacher == TeacherKind::hidden) {
        const Tensor log_p = torch::log_softmax(problem.teacher_logits / temperature, 1);
        kl = (log_p.exp() * (log_p - log_q)).sum();
    } else if (teacher == TeacherKind::topk) {
        const Tensor p = tempered_buckets(problem, temperature);
        const Tensor top = log_q.gather(1, problem.top_ids);
        const Tensor rest = (1 - top.exp().sum(1, true)).log();
        kl = (p * (p.log() - torch::cat({top, rest}, 1))).sum();
    }
    const double ratio = teacher == TeacherKind::none ? 0 : kd_ratio;
    const Tensor kd = temperature * temperature * kl;
    const Tensor loss = (1 - ratio) * ce + ratio * kd;
    (loss * scale).backward();
    return {loss.item<double>(), kd.item<double>(), ce.item<double>(), hidden.grad(), head.grad()};
}

double relative(const Tensor& got, const Tensor& wanted) {
    return ((got.to(torch::kDouble) - wanted).norm() / wanted.norm()).item<double>();
}

class GradientCheck : public testing::TestWithParam<std::tuple<TeacherKind, double, double>> {};

TEST_P(GradientCheck, AgreesWithAutogradInDouble) {
    const auto [teacher, temperature, kd_ratio] = GetParam();
    const Problem problem = make_problem();
    const DistillTargets targets = make_targets(problem, teacher, temperature);
    DistillLossOptions options;
    options.kd_ratio = kd_ratio;
    options.temperature = temperature;
    options.gradient_scale = 0.125;
    const Reference wanted = reference(problem, teacher, kd_ratio, temperature, options.gradient_scale);

    DistillLossGradients whole;
    const DistillLossSums sums = distill_loss(problem.hidden, problem.head, targets, options, &whole);
    EXPECT_NEAR(sums.loss, wanted.loss, 1e-10 * std::abs(wanted.loss));
    EXPECT_LT(relative(whole.hidden, wanted.hidden_gradient), 1e-12);
    EXPECT_LT(relative(whole.head, wanted.head_gradient), 1e-12);
    const double ratio = teacher == TeacherKind::none ? 0 : kd_ratio;
    if (ratio != 0) {
        EXPECT_NEAR(sums.kd, wanted.kd, 1e-10 * wanted.kd);
    } else {
        EXPECT_EQ(sums.kd, 0);
    }
    if (ratio != 1 || temperature == 1) {
        EXPECT_NEAR(sums.ce, wanted.ce, 1e-10 * wanted.ce);
    }

    options.chunk_rows = 3;  // 3 + 3 + 3 + 1
    DistillLossGradients chunked;
    const DistillLossSums chunked_sums = distill_loss(problem.hidden, problem.head, targets, options, &chunked);
    EXPECT_NEAR(chunked_sums.loss, sums.loss, 1e-12 * std::abs(sums.loss));
    EXPECT_LT(relative(chunked.hidden, whole.hidden), 1e-14);
    EXPECT_LT(relative(chunked.head, whole.head), 1e-14);

    // The sums do not depend on whether gradients are asked for.
    EXPECT_EQ(distill_loss(problem.hidden, problem.head, targets, options, nullptr).loss, chunked_sums.loss);
}

TEST_P(GradientCheck, IsAccurateInSinglePrecision) {
    const auto [teacher, temperature, kd_ratio] = GetParam();
    const Problem problem = make_problem();
    DistillTargets targets = make_targets(problem, teacher, temperature);
    const auto narrow = [](Tensor& tensor) { tensor = tensor.defined() ? tensor.to(torch::kFloat) : tensor; };
    narrow(targets.topk_probabilities);
    narrow(targets.tail_probability);
    narrow(targets.negative_entropy);
    narrow(targets.teacher_logits);
    narrow(targets.teacher_hidden);
    narrow(targets.teacher_head);
    DistillLossOptions options;
    options.kd_ratio = kd_ratio;
    options.temperature = temperature;
    const Reference wanted = reference(problem, teacher, kd_ratio, temperature, 1.0);
    for (const std::int64_t chunk : {0, 4}) {
        options.chunk_rows = chunk;
        DistillLossGradients gradients;
        const DistillLossSums sums = distill_loss(problem.hidden.to(torch::kFloat), problem.head.to(torch::kFloat),
                                                  targets, options, &gradients);
        EXPECT_NEAR(sums.loss, wanted.loss, 1e-5 * std::abs(wanted.loss));
        EXPECT_LT(relative(gradients.hidden, wanted.hidden_gradient), 1e-5);
        EXPECT_LT(relative(gradients.head, wanted.head_gradient), 1e-5);
    }
}

INSTANTIATE_TEST_SUITE_P(DistillLoss, GradientCheck,
                         testing::Combine(testing::Values(TeacherKind::none, TeacherKind::topk, TeacherKind::full,
                                                          TeacherKind::hidden),
                                          testing::Values(1.0, 2.0), testing::Values(0.0, 0.5, 1.0)));

TEST(DistillLoss, HeadGradientIsAddedToWhatIsThere) {
    const Problem problem = make_problem();
    const DistillTargets targets = make_targets(problem, TeacherKind::topk, 1.0);
    DistillLossGradients once;
    distill_loss(problem.hidden, problem.head, targets, {}, &once);
    DistillLossGradients twice;
    twice.head = once.head.clone();
    distill_loss(problem.hidden, problem.head, targets, {}, &twice);
    EXPECT_LT(relative(twice.head, 2 * once.head), 1e-15);
}

TEST(DistillLoss, VanishesWhenTheStudentIsTheTeacher) {
    Problem problem = make_problem();
    problem.teacher_logits = problem.hidden.mm(problem.head.t());
    const Tensor log_p = torch::log_softmax(problem.teacher_logits, 1);
    std::tie(problem.top_log_p, problem.top_ids) = log_p.topk(kTop, 1);
    problem.log_tail = torch::log(1 - problem.top_log_p.exp().sum(1));
    for (const TeacherKind teacher : {TeacherKind::topk, TeacherKind::full}) {
        DistillLossGradients gradients;
        const DistillLossSums sums =
            distill_loss(problem.hidden, problem.head, make_targets(problem, teacher, 1.0), {}, &gradients);
        EXPECT_NEAR(sums.kd, 0, 1e-12);
        EXPECT_LT(gradients.hidden.norm().item<double>(), 1e-12);
    }
}

TEST(DistillLoss, ACertainStudentGivesAFiniteLossAndGradient) {
    // Logits of ±thousands: the student's mass outside the top-k underflows, the teacher's does not.
    Problem problem = make_problem();
    for (const double temperature : {1.0, 2.0}) {
        for (const TeacherKind teacher : {TeacherKind::topk, TeacherKind::full}) {
            DistillTargets targets = make_targets(problem, teacher, temperature);
            DistillLossOptions options;
            options.temperature = temperature;
            options.kd_ratio = 0.5;
            DistillLossGradients gradients;
            const DistillLossSums sums = distill_loss((1000 * problem.hidden).to(torch::kFloat),
                                                      problem.head.to(torch::kFloat), targets, options, &gradients);
            EXPECT_TRUE(std::isfinite(sums.loss));
            EXPECT_TRUE(torch::isfinite(gradients.hidden).all().item<bool>());
            EXPECT_TRUE(torch::isfinite(gradients.head).all().item<bool>());
            EXPECT_GT(gradients.hidden.norm().item<double>(), 0);
        }
    }
}

TEST(DistillLoss, TokensTheTeacherRulesOutCostNothing) {
    Problem problem = make_problem();
    DistillTargets targets = make_targets(problem, TeacherKind::full, 1.0);
    targets.teacher_logits = targets.teacher_logits.clone();
    targets.teacher_logits.select(1, 3).fill_(-std::numeric_limits<double>::infinity());
    DistillLossGradients gradients;
    const DistillLossSums sums = distill_loss(problem.hidden, problem.head, targets, {}, &gradients);
    EXPECT_TRUE(std::isfinite(sums.kd));
    // −1e9 instead of −inf is the same distribution.
    targets.teacher_logits.select(1, 3).fill_(-1e9);
    EXPECT_NEAR(distill_loss(problem.hidden, problem.head, targets, {}, nullptr).kd, sums.kd, 1e-10 * sums.kd);
}

TEST(DistillLoss, Bf16MatricesKeepTheSumsInSinglePrecision) {
    const Problem problem = make_problem();
    const DistillTargets targets = make_targets(problem, TeacherKind::topk, 1.0);
    const Reference wanted = reference(problem, TeacherKind::topk, 1.0, 1.0, 1.0);
    DistillLossGradients gradients;
    const DistillLossSums sums =
        distill_loss(problem.hidden.to(torch::kBFloat16), problem.head.to(torch::kBFloat16), targets, {}, &gradients);
    EXPECT_NEAR(sums.kd, wanted.kd, 0.03 * wanted.kd);
    EXPECT_EQ(gradients.hidden.scalar_type(), torch::kBFloat16);
    EXPECT_EQ(gradients.head.scalar_type(), torch::kFloat);
    EXPECT_LT(relative(gradients.hidden, wanted.hidden_gradient), 0.03);
    EXPECT_LT(relative(gradients.head, wanted.head_gradient), 0.03);
}

TEST(DistillLoss, HiddenStatesGiveWhatTheTeachersLogitsGive) {
    // As they come: states in fp32, fp16 or bf16, rounded once, and a head in fp32.
    const Problem problem = make_problem();
    for (const double temperature : {1.0, 2.0}) {
        for (const auto type : {torch::kFloat, torch::kHalf, torch::kBFloat16}) {
            DistillTargets hidden = make_targets(problem, TeacherKind::hidden, temperature);
            hidden.teacher_hidden = problem.teacher_hidden.to(type);
            hidden.teacher_head = problem.teacher_head.to(torch::kFloat);
            DistillTargets logits = make_targets(problem, TeacherKind::full, temperature);
            logits.teacher_logits =
                hidden.teacher_hidden.to(torch::kDouble).mm(hidden.teacher_head.to(torch::kDouble).t());
            DistillLossOptions options;
            options.temperature = temperature;
            options.chunk_rows = 4;
            DistillLossGradients got;
            DistillLossGradients wanted;
            const auto x = problem.hidden.to(torch::kFloat);
            const auto w = problem.head.to(torch::kFloat);
            const double sum = distill_loss(x, w, hidden, options, &got).loss;
            EXPECT_NEAR(distill_loss(x, w, logits, options, &wanted).loss, sum, 1e-5 * sum);
            EXPECT_LT(relative(got.hidden, wanted.hidden.to(torch::kDouble)), 1e-5);
            EXPECT_LT(relative(got.head, wanted.head.to(torch::kDouble)), 1e-5);
        }
    }
}

TEST(DistillLoss, ChunksHoldABoundedNumberOfLogits) {
    for (const bool on_cpu : {true, false}) {
        EXPECT_EQ(loss_chunk_rows(257, on_cpu), 4096);
        for (const std::int64_t vocabulary : {32000, 50257, 128256, 151936, 262144}) {
            EXPECT_LE(loss_chunk_rows(vocabulary, on_cpu) * vocabulary, std::int64_t{1} << (on_cpu ? 26 : 28));
            EXPECT_GE(loss_chunk_rows(vocabulary, on_cpu), 128);
        }
    }
}

}  // namespace
}  // namespace distilld::models
