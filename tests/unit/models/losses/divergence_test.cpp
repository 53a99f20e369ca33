#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "models/losses/distill_loss.hpp"

// What distill_loss() makes of beta: values of TRL, plain autograd, finite differences, and the edges.
namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::int64_t kRows = 10;
constexpr std::int64_t kHidden = 6;
constexpr std::int64_t kVocabulary = 23;

enum class Teacher { topk, full, hidden };

const auto kDoubles = torch::TensorOptions().dtype(torch::kDouble);
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double relative(const Tensor& got, const Tensor& wanted) {
    return ((got.to(torch::kDouble) - wanted).norm() / wanted.norm()).item<double>();
}

/// One row of values of trl 1.16.0, GKDTrainer.generalized_jsd_loss(…, reduction="sum") in fp64 on the logits below.
struct OfTrl {
    double beta, temperature, loss, gradient_norm, gradient_at_1_2;
};
constexpr OfTrl kTrl[] = {
    {0.0, 0.5, 12.3649773385, 3.00387301275, 0.988576888772},
    {0.0, 1.0, 5.4525169246, 1.1415575435, 0.430494102347},
    {0.0, 2.0, 1.98457512081, 0.365203742564, 0.135357283785},
    {0.1, 0.5, 0.617241065334, 0.106000094144, 0.0143077335888},
    {0.1, 1.0, 0.404051134193, 0.0638121690203, 0.0254650748307},
    {0.1, 2.0, 0.169115001895, 0.0287714411149, 0.011411476512},
    {0.5, 0.5, 1.36332833103, 0.258583824607, 0.0446202705556},
    {0.5, 1.0, 0.959293616532, 0.153988969074, 0.0622956044088},
    {0.5, 2.0, 0.43653055599, 0.0702218899496, 0.0315551251163},
    {0.9, 0.5, 0.611448638817, 0.148562630568, 0.0476376625315},
    {0.9, 1.0, 0.412668837874, 0.0851483187224, 0.0401395755233},
    {0.9, 2.0, 0.16896595466, 0.0306284960719, 0.0150682493733},
    {1.0, 0.5, 13.9897037743, 7.4240725488, 3.29205614341},
    {1.0, 1.0, 5.92562706617, 1.72036300642, 0.833168388832},
    {1.0, 2.0, 1.98681324851, 0.394271948907, 0.196543214297},
};

TEST(Divergence, IsThatOfTrl) {
    constexpr std::int64_t kTokens = 7;
    Tensor student = torch::empty({3, kTokens}, kDoubles);
    Tensor teacher = torch::empty({3, kTokens}, kDoubles);
    for (int r = 0; r < 3; ++r) {
        for (int v = 0; v < kTokens; ++v) {
            student[r][v] = 2 * std::sin(1 + 3 * r + 2 * v);
            teacher[r][v] = 3 * std::cos(0.5 + 1.7 * r + v);
        }
    }
    for (const OfTrl& wanted : kTrl) {
        // The same as full logits and, where k covers the vocabulary, as top-k.
        for (const bool as_topk : {false, true}) {
            DistillTargets targets;
            targets.labels = torch::zeros({3}, torch::kLong);
            if (as_topk) {
                const Tensor p = torch::softmax(teacher / wanted.temperature, 1);
                const auto [top, ids] = p.topk(kTokens, 1);
                targets.topk_ids = ids;
                targets.topk_probabilities = top;
                targets.tail_probability = torch::zeros({3}, kDoubles);
                targets.negative_entropy = (p * p.log()).sum(1);
            } else {
                targets.teacher_logits = teacher;
            }
            DistillLossOptions options;
            options.divergence = divergence_of_beta(wanted.beta);
            options.temperature = wanted.temperature;
            const double square = wanted.temperature * wanted.temperature;  // TRL has no T²
            DistillLossGradients gradients;
            const DistillLossSums sums =
                distill_loss(student, torch::eye(kTokens, kDoubles), targets, options, &gradients);
            const std::string where = "beta " + std::to_string(wanted.beta) + ", T " +
                                      std::to_string(wanted.temperature) + (as_topk ? ", top-k" : ", full");
            EXPECT_NEAR(sums.kd / square, wanted.loss, 1e-9) << where;
            EXPECT_NEAR(gradients.hidden.norm().item<double>() / square, wanted.gradient_norm, 1e-9) << where;
            EXPECT_NEAR(gradients.hidden[1][2].item<double>() / square, wanted.gradient_at_1_2, 1e-9) << where;
        }
    }
}

/// Random inputs in fp64 and a teacher's targets at a temperature.
struct Problem {
    Tensor hidden, head, teacher_logits;
    DistillTargets targets;
    Tensor buckets;  ///< [n, b] of the teacher
};

Problem make_problem(Teacher teacher, double temperature, std::int64_t k = 4) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(7);
    Problem problem;
    problem.hidden = torch::randn({kRows, kHidden}, generator, kDoubles);
    problem.head = torch::randn({kVocabulary, kHidden}, generator, kDoubles);
    problem.targets.labels = torch::randint(0, kVocabulary, {kRows}, generator, torch::kLong);
    const Tensor states = torch::randn({kRows, 9}, generator, kDoubles);
    const Tensor teacher_head = 0.7 * torch::randn({kVocabulary, 9}, generator, kDoubles);
    problem.teacher_logits = states.mm(teacher_head.t());
    problem.buckets = torch::softmax(problem.teacher_logits / temperature, 1);
    if (teacher == Teacher::full) {
        problem.targets.teacher_logits = problem.teacher_logits;
    } else if (teacher == Teacher::hidden) {
        problem.targets.teacher_hidden = states;
        problem.targets.teacher_head = teacher_head;
    } else {
        const auto [top, ids] = problem.buckets.topk(k, 1);
        const Tensor tail = (1 - top.sum(1, true)).clamp_min(0);
        problem.targets.topk_ids = ids;
        problem.targets.topk_probabilities = top;
        problem.targets.tail_probability = tail.squeeze(1);
        problem.buckets = torch::cat({top, tail}, 1);
        problem.targets.negative_entropy = torch::xlogy(problem.buckets, problem.buckets).sum(1);
    }
    return problem;
}

/// The definition, for autograd.
Tensor plain_loss(const Problem& problem, const Tensor& hidden, const Tensor& head, const DistillLossOptions& options) {
    const Tensor logits = hidden.mm(head.t());
    const Tensor ce = -torch::log_softmax(logits, 1).gather(1, problem.targets.labels.unsqueeze(1)).sum();
    Tensor log_q = torch::log_softmax(logits / options.temperature, 1);
    if (problem.targets.topk_ids.defined()) {
        const Tensor top = log_q.gather(1, problem.targets.topk_ids);
        log_q = torch::cat({top, (1 - top.exp().sum(1, true)).clamp_min(1e-300).log()}, 1);
    }
    const Tensor q = log_q.exp();
    const Tensor& p = problem.buckets;
    const Tensor log_p = p.clamp_min(1e-30).log();
    const double beta = options.divergence.parameter;  // 0: reverse KL
    const Tensor log_m = (beta * p + (1 - beta) * q).log();
    const Tensor value = beta == 0 ? q * (log_q - log_p)
                                   : beta * torch::xlogy(p, p) - beta * p * log_m + (1 - beta) * q * (log_q - log_m);
    return (1 - options.kd_ratio) * ce + options.kd_ratio * options.temperature * options.temperature * value.sum();
}

class DivergenceGradients : public testing::TestWithParam<std::tuple<Teacher, double, double, double>> {
  protected:
    [[nodiscard]] static Teacher teacher() { return std::get<0>(GetParam()); }
    [[nodiscard]] static DistillLossOptions options() {
        DistillLossOptions made;
        made.temperature = std::get<1>(GetParam());
        made.kd_ratio = std::get<2>(GetParam());
        made.divergence = divergence_of_beta(std::get<3>(GetParam()));
        return made;
    }
};

TEST_P(DivergenceGradients, AgreesWithAutogradInDouble) {
    DistillLossOptions chosen = options();
    const Problem problem = make_problem(teacher(), chosen.temperature);
    const Tensor hidden = problem.hidden.clone().requires_grad_(true);
    const Tensor head = problem.head.clone().requires_grad_(true);
    const Tensor wanted = plain_loss(problem, hidden, head, chosen);
    (wanted * 0.125).backward();
    chosen.gradient_scale = 0.125;
    for (const std::int64_t chunk : {0, 3}) {
        chosen.chunk_rows = chunk;
        DistillLossGradients got;
        const DistillLossSums sums = distill_loss(problem.hidden, problem.head, problem.targets, chosen, &got);
        EXPECT_NEAR(sums.loss, wanted.item<double>(), 1e-10 * std::abs(wanted.item<double>()));
        EXPECT_LT(relative(got.hidden, hidden.grad()), 1e-11);
        EXPECT_LT(relative(got.head, head.grad()), 1e-11);
    }
}

TEST_P(DivergenceGradients, AgreesWithFiniteDifferences) {
    const DistillLossOptions chosen = options();
    const Problem problem = make_problem(teacher(), chosen.temperature);
    DistillLossGradients got;
    distill_loss(problem.hidden, problem.head, problem.targets, chosen, &got);
    const auto loss_at = [&](std::int64_t row, std::int64_t column, double step) {
        const Tensor moved = problem.hidden.clone();
        moved[row][column] += step;
        return distill_loss(moved, problem.head, problem.targets, chosen, nullptr).loss;
    };
    constexpr double kStep = 1e-5;
    for (std::int64_t row = 0; row < kRows; row += 3) {
        for (std::int64_t column = 0; column < kHidden; ++column) {
            const double slope = (loss_at(row, column, kStep) - loss_at(row, column, -kStep)) / (2 * kStep);
            EXPECT_NEAR(got.hidden[row][column].item<double>(), slope, 1e-7 * std::max(1.0, std::abs(slope)));
        }
    }
}

TEST_P(DivergenceGradients, IsAccurateInSinglePrecision) {
    const DistillLossOptions chosen = options();
    Problem problem = make_problem(teacher(), chosen.temperature);
    DistillLossGradients wanted;
    const double loss = distill_loss(problem.hidden, problem.head, problem.targets, chosen, &wanted).loss;
    DistillTargets& targets = problem.targets;
    for (Tensor* tensor : {&targets.topk_probabilities, &targets.tail_probability, &targets.negative_entropy,
                           &targets.teacher_logits, &targets.teacher_hidden, &targets.teacher_head}) {
        *tensor = tensor->defined() ? tensor->to(torch::kFloat) : *tensor;
    }
    DistillLossGradients got;
    const DistillLossSums sums =
        distill_loss(problem.hidden.to(torch::kFloat), problem.head.to(torch::kFloat), targets, chosen, &got);
    EXPECT_NEAR(sums.loss, loss, 1e-5 * std::abs(loss));
    EXPECT_LT(relative(got.hidden, wanted.hidden), 1e-5);
    EXPECT_LT(relative(got.head, wanted.head), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Divergence, DivergenceGradients,
                         testing::Combine(testing::Values(Teacher::topk, Teacher::full, Teacher::hidden),
                                          testing::Values(0.5, 1.0, 2.0), testing::Values(0.5, 1.0),
                                          testing::Values(0.01, 0.5, 0.9, 1.0)));

TEST(Divergence, VanishesWhenTheStudentIsTheTeacher) {
    for (const double beta : {0.0, 0.3, 1.0}) {
        Problem problem = make_problem(Teacher::full, 1.0);
        problem.targets.teacher_logits = problem.hidden.mm(problem.head.t());
        DistillLossOptions options;
        options.divergence = divergence_of_beta(beta);
        DistillLossGradients gradients;
        const DistillLossSums sums = distill_loss(problem.hidden, problem.head, problem.targets, options, &gradients);
        EXPECT_NEAR(sums.kd, 0, 1e-12);
        EXPECT_LT(gradients.hidden.norm().item<double>(), 1e-12);
    }
}

TEST(Divergence, OneTokenAndAllOfThemAreTopKToo) {
    for (const std::int64_t k : {std::int64_t{1}, kVocabulary}) {
        for (const double beta : {0.4, 1.0}) {
            const Problem problem = make_problem(Teacher::topk, 2.0, k);
            DistillLossOptions options;
            options.divergence = divergence_of_beta(beta);
            options.temperature = 2.0;
            options.kd_ratio = 0.5;
            const Tensor hidden = problem.hidden.clone().requires_grad_(true);
            const Tensor wanted = plain_loss(problem, hidden, problem.head, options);
            wanted.backward();
            DistillLossGradients got;
            const DistillLossSums sums = distill_loss(problem.hidden, problem.head, problem.targets, options, &got);
            EXPECT_NEAR(sums.loss, wanted.item<double>(), 1e-8 * wanted.item<double>()) << k << " " << beta;
            EXPECT_LT(relative(got.hidden, hidden.grad()), 1e-8) << k << " " << beta;
        }
    }
}

// −inf among the teacher's logits, an entry or a tail of 0: the token counts as one of probability 1e-30.
TEST(Divergence, WhatTheTeacherRulesOutCostsAFiniteAmount) {
    for (const double beta : {0.5, 1.0}) {
        DistillLossOptions options;
        options.divergence = divergence_of_beta(beta);
        Problem full = make_problem(Teacher::full, 1.0);
        full.targets.teacher_logits = full.teacher_logits.clone();
        full.targets.teacher_logits.select(1, 3).fill_(-kInfinity);
        DistillLossGradients gradients;
        const DistillLossSums of_full = distill_loss(full.hidden, full.head, full.targets, options, &gradients);
        EXPECT_TRUE(torch::isfinite(gradients.hidden).all().item<bool>());
        full.buckets = torch::softmax(full.targets.teacher_logits, 1);
        const double wanted = plain_loss(full, full.hidden, full.head, options).item<double>();
        EXPECT_NEAR(of_full.kd, wanted, 1e-9 * wanted) << beta;

        Problem topk = make_problem(Teacher::topk, 1.0);
        topk.targets.topk_probabilities.select(1, 2).zero_();
        topk.targets.tail_probability.zero_();
        topk.buckets = torch::cat({topk.targets.topk_probabilities, torch::zeros({kRows, 1}, kDoubles)}, 1);
        const DistillLossSums of_topk = distill_loss(topk.hidden, topk.head, topk.targets, options, &gradients);
        EXPECT_TRUE(torch::isfinite(gradients.hidden).all().item<bool>());
        const double wanted_topk = plain_loss(topk, topk.hidden, topk.head, options).item<double>();
        EXPECT_NEAR(of_topk.kd, wanted_topk, 1e-9 * wanted_topk) << beta;
    }
}

TEST(Divergence, ACertainStudentGivesAFiniteLossAndGradient) {
    for (const Teacher teacher : {Teacher::topk, Teacher::full}) {
        for (const double beta : {0.5, 1.0}) {
            const Problem problem = make_problem(teacher, 1.0);
            DistillLossOptions options;
            options.divergence = divergence_of_beta(beta);
            options.kd_ratio = 0.5;
            DistillLossGradients gradients;
            const DistillLossSums sums =
                distill_loss((1000 * problem.hidden).to(torch::kFloat), problem.head.to(torch::kFloat), problem.targets,
                             options, &gradients);
            EXPECT_TRUE(std::isfinite(sums.loss));
            EXPECT_TRUE(torch::isfinite(gradients.hidden).all().item<bool>());
            EXPECT_TRUE(torch::isfinite(gradients.head).all().item<bool>());
        }
    }
}

TEST(Divergence, ComparesTheTokensOfStudentAndTeacher) {
    for (const Teacher teacher : {Teacher::topk, Teacher::full, Teacher::hidden}) {
        const Problem problem = make_problem(teacher, 1.0);
        DistillLossOptions options;
        options.compare_tokens = true;
        options.chunk_rows = 4;
        const Tensor ours = problem.hidden.mm(problem.head.t()).argmax(1);
        const auto wanted = ours.eq(problem.teacher_logits.argmax(1)).sum().item<std::int64_t>();
        const DistillLossSums sums = distill_loss(problem.hidden, problem.head, problem.targets, options, nullptr);
        EXPECT_EQ(sums.agreeing, static_cast<std::uint64_t>(wanted));
        const Tensor p = torch::softmax(problem.teacher_logits, 1);
        Tensor least = torch::minimum(torch::softmax(problem.hidden.mm(problem.head.t()), 1), p);
        const double exact = least.sum().item<double>();
        if (teacher == Teacher::topk) {
            least = least.gather(1, problem.targets.topk_ids);
            EXPECT_LE(sums.accepted, exact);
            EXPECT_GE(sums.accepted, exact - problem.targets.tail_probability.sum().item<double>());
        }
        EXPECT_NEAR(sums.accepted, least.sum().item<double>(), teacher == Teacher::topk ? 1e-5 : 1e-9);
        Problem same = problem;
        same.hidden = torch::zeros_like(problem.hidden);
        same.targets.teacher_hidden = same.targets.teacher_head = same.targets.topk_ids = Tensor();
        same.targets.teacher_logits = torch::zeros({kRows, kVocabulary}, kDoubles);
        EXPECT_EQ(distill_loss(same.hidden, same.head, same.targets, options, nullptr).agreeing,
                  static_cast<std::uint64_t>(kRows));
    }
}

}  // namespace
}  // namespace distilld::models
