#include "pipeline/data/reading_report.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ReadingReport, SpeaksOnceAnInterval) {
    ReadingReport::Clock::time_point now{};
    std::vector<std::string> said;
    ReadingReport report(
        "/dataset/train", [&said](const std::string& text) { said.push_back(text); }, [&now] { return now; });
    report({0.1, 12'300'000'000, 5'000'000, 8});
    now += std::chrono::seconds(9);
    report({0.2, 12'300'000'000, 10'000'000, 8});
    EXPECT_THAT(said, IsEmpty());
    now += std::chrono::seconds(1);
    report({0.345, 12'300'000'000, 15'000'000, 8});
    now += std::chrono::seconds(1);
    report({0.4, 12'300'000'000, 16'000'000, 8});
    now += std::chrono::seconds(19);
    report({0.5, 12'300'000'000, 15'400'000, 1});
    EXPECT_THAT(said, ElementsAre("/dataset/train: 34% of 12.3 GB read, 1.5 million tokens/s on 8 threads",
                                  "/dataset/train: 50% of 12.3 GB read, 20000 tokens/s on 1 thread"));
}

}  // namespace
}  // namespace distilld
