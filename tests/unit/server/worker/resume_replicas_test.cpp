#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/worker/resume_identity.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ResumeIdentity, ARunKeepsItsReplicasWhoseNumberBeyondOneDoesNotMatter) {
    JobSpec run;
    run.training.replicas_auto = false;
    run.training.replicas = 2;
    const std::string two = make_run_identity(run, "hash");
    run.training.replicas = 1;
    const std::string one = make_run_identity(run, "hash");
    JobSpec open = run;
    open.training.replicas_auto = true;
    adopt_decisions(two, open);
    EXPECT_FALSE(open.training.replicas_auto);
    EXPECT_EQ(open.training.replicas, 2U);
    EXPECT_THAT(last_bits_warnings(two, open), IsEmpty());
    EXPECT_THAT(last_bits_warnings(one, open), ElementsAre(HasSubstr("/training/replicas: is 2, but")));
    open.training.replicas = 3;
    EXPECT_THAT(last_bits_warnings(two, open), IsEmpty());
    open.training.replicas = 1;
    EXPECT_THAT(last_bits_warnings(two, open), ElementsAre(HasSubstr("/training/replicas: is 1, but")));
}

}  // namespace
}  // namespace distilld
