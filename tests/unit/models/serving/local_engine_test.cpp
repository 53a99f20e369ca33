#include "models/serving/local_engine.hpp"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <string>
#include <thread>

#include "models/serving/teacher_engine.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/models/network/small_network.hpp"

namespace distilld::models {
namespace {

using ::testing::HasSubstr;

ScoreRequest request_of(ScoreRequest::Mode mode) {
    ScoreRequest request;
    request.rows = 2;
    request.columns = 5;
    request.input_ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    request.lengths = {5, 3};
    request.mode = mode;
    request.top_k = mode == ScoreRequest::Mode::topk ? 4 : 0;
    return request;
}

class LocalEngine : public ::testing::Test {
  protected:
    LocalEngine() { EXPECT_TRUE(test::save(*test::make_network(test::small_config()), folder_.path())); }

    TeacherSpec spec(TeacherPlacement placement) const {
        TeacherSpec spec;
        spec.model_dir = folder_.path().string();
        spec.dtype = Dtype::fp32;
        spec.placement = placement;
        spec.threads = 1;
        return spec;
    }

    test::TemporaryFolder folder_;
};

TEST(LocalThreads, TakeHalfTheCoresUnlessTheSpecSaysHowMany) {
    EXPECT_EQ(local_threads_for(3, 8), 3U);
    EXPECT_EQ(local_threads_for(0, 8), 4U);
    EXPECT_EQ(local_threads_for(0, 1), 1U);
}

TEST_F(LocalEngine, SaysWhatTheServerSaysWhereverItsWeightsLie) {
    torch::set_num_threads(1);
    const auto served = load_teacher_engine(folder_.path(), Dtype::fp32, 1);
    ASSERT_TRUE(served);
    for (const auto placement : {TeacherPlacement::rank0, TeacherPlacement::cpu, TeacherPlacement::balanced,
                                 TeacherPlacement::shared, TeacherPlacement::duplicated}) {
        const auto local = local_model_loader("cpu")(spec(placement), true);
        ASSERT_TRUE(local) << local.error().message;
        EXPECT_EQ((*local)->model().head.sha256, (*served)->model().head.sha256);
        for (const auto mode : {ScoreRequest::Mode::topk, ScoreRequest::Mode::logits, ScoreRequest::Mode::hidden}) {
            const auto here = (*local)->score(request_of(mode));
            const auto there = (*served)->score(request_of(mode));
            ASSERT_TRUE(here && there);
            EXPECT_EQ(here->topk_ids, there->topk_ids);
            EXPECT_EQ(here->topk_logprobs, there->topk_logprobs);
            EXPECT_EQ(here->tail_logprob, there->tail_logprob);
            EXPECT_EQ(here->logits_f16, there->logits_f16);
            EXPECT_EQ(here->hidden_half, there->hidden_half);
        }
    }
}

TEST_F(LocalEngine, LeavesTheHeadOutWhereNobodyWillAskForIt) {
    const auto local = local_model_loader("cpu")(spec(TeacherPlacement::cpu), false);
    ASSERT_TRUE(local);
    EXPECT_FALSE((*local)->model().head.is_there());
}

/// As docs/tuning.md says: a number of threads is that of the thread that computes, and later ones get the student's.
TEST_F(LocalEngine, LeavesTheStudentItsThreads) {
    at::set_num_threads(3);
    std::string of_teacher;
    int teachers = 0;
    std::thread([&] {
        ASSERT_TRUE(local_model_loader("cpu")(spec(TeacherPlacement::cpu), false));
        teachers = at::get_num_threads();
        of_teacher = at::get_parallel_info();
    }).join();
    EXPECT_EQ(teachers, 1);
    EXPECT_EQ(at::get_num_threads(), 3);
    EXPECT_THAT(at::get_parallel_info(), HasSubstr("omp_get_max_threads() : 3"));
    if (at::hasMKL()) {
        EXPECT_THAT(of_teacher, HasSubstr("mkl_get_max_threads() : 1"));
        EXPECT_THAT(at::get_parallel_info(), HasSubstr("mkl_get_max_threads() : 3"));
    }
    int later = 0;
    std::thread([&] { later = at::get_num_threads(); }).join();
    EXPECT_EQ(later, 3);
}

}  // namespace
}  // namespace distilld::models
