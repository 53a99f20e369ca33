#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "api/job_spec_json.hpp"

namespace distilld::api {
namespace {

TEST(TaskRules, TasksAreOfAGenerateJob) {
    const std::string generate = R"({"kind": "generate", "dataset": {"train": "d.jsonl", "sequence_length": 8},
        "teacher": {"endpoints": ["http://127.0.0.1:8000"], "store": "answers"}})";
    EXPECT_EQ(parse_job_spec(generate).value().tasks, 1U);
    const auto with_tasks = [](const std::string& spec, const char* tasks) {
        std::string changed = spec;
        changed.insert(1, std::string(R"("tasks": )") + tasks + ", ");
        return parse_job_spec(changed);
    };
    EXPECT_EQ(with_tasks(generate, "1024").value().tasks, kMaxTasks);
    const auto automatic = with_tasks(generate, "\"auto\"").value();
    EXPECT_TRUE(automatic.tasks_auto);
    EXPECT_EQ(parse_job_spec(to_json(automatic)).value().tasks_auto, true);
    for (const char* bad : {"0", "1025", "\"many\"", "-1", "1.5"}) {
        EXPECT_THAT(describe(with_tasks(generate, bad).error()), ::testing::HasSubstr("/tasks: ")) << bad;
    }
    const std::string student = R"({"student": {"model": "m"}, "dataset": {"train": "d", "sequence_length": 8},
        "training": {"max_steps": 1}, "output": "o"})";
    EXPECT_TRUE(with_tasks(student, "1"));
    for (const char* several : {"2", "\"auto\""}) {
        const auto refused = with_tasks(student, several);
        ASSERT_FALSE(refused);
        EXPECT_THAT(describe(refused.error()), ::testing::HasSubstr("/tasks: is for a generate job, and this one"));
    }
}

}  // namespace
}  // namespace distilld::api
