#include "server/supervisor/worker_environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/job_spec_json.hpp"

namespace distilld {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

/// What a worker that is given this spec has.
std::vector<std::string> environment_for(const std::string& spec_json, std::vector<std::string> settings = {}) {
    const auto spec = api::parse_job_spec(spec_json);
    return child_environment(std::move(settings), spec ? &*spec : nullptr);
}

/// A valid spec with `members` ("\"metrics\":{…}") beside what is required.
std::string spec_with(const std::string& members) {
    return R"({"student":{"model":"/m"},"dataset":{"train":"/t.jsonl","sequence_length":8},)"
           R"("training":{"max_steps":1},"output":"/o")" +
           (members.empty() ? "" : "," + members) + "}";
}

TEST(WorkerEnvironment, PassesOnWhatAWorkerNeedsAndTheKeyOfItsJob) {
    for (const char* name :
         {"OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "LC_ALL", "CUDA_VISIBLE_DEVICES", "DISTILLD_KEYS_DIR",
          "DISTILLD_TEACHER_HOSTS", "DISTILLD_API_KEY", "DISTILLD_ADMIN_KEY", "DISTILLD_KEY_A", "DISTILLD_KEY_AB",
          "AWS_SECRET_ACCESS_KEY", "OMPX", "LANGX", "SHELL_LIKE"}) {
        ::setenv(name, "ours", 1);
    }
    const std::vector<std::string> settings{"OMP_NUM_THREADS=2"};
    const auto plain = environment_for(spec_with(""), settings);
    EXPECT_THAT(plain, ::testing::IsSupersetOf({"OMP_NUM_THREADS=2", "GLOO_SOCKET_IFNAME=ours", "LC_ALL=ours",
                                                "CUDA_VISIBLE_DEVICES=ours", "DISTILLD_KEYS_DIR=ours",
                                                "DISTILLD_TEACHER_HOSTS=ours"}));
    EXPECT_THAT(plain, Contains(::testing::StartsWith("PATH=")));
    EXPECT_THAT(plain, Not(Contains("OMP_NUM_THREADS=ours")));
    for (const char* name :
         {"DISTILLD_KEY_", "DISTILLD_API_", "DISTILLD_ADMIN_", "AWS_", "OMPX", "LANGX", "SHELL_LIKE"}) {
        EXPECT_THAT(plain, Not(Contains(::testing::StartsWith(name))));
    }
    const auto keyed =
        environment_for(spec_with(R"("teacher":{"endpoints":["http://t"],"api_key_env":"DISTILLD_KEY_A"})"));
    EXPECT_THAT(keyed, Contains("DISTILLD_KEY_A=ours"));
    EXPECT_THAT(keyed, Not(Contains("DISTILLD_KEY_AB=ours")));
    // What the spec's check would refuse is not passed on either.
    const auto sly =
        environment_for(spec_with(R"("teacher":{"endpoints":["http://t"],"api_key_env":"AWS_SECRET_ACCESS_KEY"})"));
    EXPECT_THAT(sly, Not(Contains("AWS_SECRET_ACCESS_KEY=ours")));
    EXPECT_THAT(environment_for("no JSON"), Not(Contains("DISTILLD_KEY_A=ours")));
    for (const char* name :
         {"OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "LC_ALL", "CUDA_VISIBLE_DEVICES", "DISTILLD_KEYS_DIR",
          "DISTILLD_TEACHER_HOSTS", "DISTILLD_API_KEY", "DISTILLD_ADMIN_KEY", "DISTILLD_KEY_A", "DISTILLD_KEY_AB",
          "AWS_SECRET_ACCESS_KEY", "OMPX", "LANGX", "SHELL_LIKE"}) {
        ::unsetenv(name);
    }
}

TEST(WorkerEnvironment, F9EachOfSeveralTeachersHasItsKey) {
    for (const char* name : {"DISTILLD_KEY_A", "DISTILLD_KEY_B", "DISTILLD_KEY_C"}) {
        ::setenv(name, "ours", 1);
    }
    const auto keyed = environment_for(spec_with(R"("teachers":{
        "default":{"endpoints":["http://t"],"api_key_env":"DISTILLD_KEY_A"},
        "other":{"endpoints":["http://u"],"api_key_env":"DISTILLD_KEY_B"}})"));
    const auto spec = api::parse_job_spec(spec_with(R"("teachers":{
        "default":{"endpoints":["http://t"],"api_key_env":"DISTILLD_KEY_A"},
        "missing":{"endpoints":["http://m"],"api_key_env":"DISTILLD_KEY_MISSING"},
        "none":{"endpoints":["http://u"]}})"));
    ASSERT_TRUE(spec);
    EXPECT_EQ(keys_of_job(&*spec), (std::map<std::string, std::string>{{"DISTILLD_KEY_A", "ours"}}));
    EXPECT_TRUE(keys_of_job(nullptr).empty());
    for (const char* name : {"DISTILLD_KEY_A", "DISTILLD_KEY_B", "DISTILLD_KEY_C"}) {
        ::unsetenv(name);
    }
    EXPECT_THAT(keyed, ::testing::IsSupersetOf({"DISTILLD_KEY_A=ours", "DISTILLD_KEY_B=ours"}));
    EXPECT_THAT(keyed, Not(Contains("DISTILLD_KEY_C=ours")));
}

TEST(WorkerEnvironment, KeysOfASinkGoToTheOperatorsOwnServerAlone) {
    const std::vector<std::pair<const char*, const char*>> variables{
        {"MLFLOW_TRACKING_URI", "https://mlflow.our.org"},
        {"MLFLOW_TRACKING_TOKEN", "secret"},
        {"MLFLOW_EXPERIMENT_NAME", "plain"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/x"},
        {"OTEL_EXPORTER_OTLP_HEADERS", "secret"},
    };
    for (const auto& [name, value] : variables) {
        ::setenv(name, value, 1);
    }
    const auto passed_on = [](const std::string& name, const std::string& metrics) {
        const auto environment = environment_for(spec_with(R"("metrics":{)" + metrics + "}"));
        return std::ranges::any_of(environment,
                                   [&](const std::string& entry) { return entry.starts_with(name + "="); });
    };
    EXPECT_TRUE(passed_on("MLFLOW_EXPERIMENT_NAME", ""));
    EXPECT_TRUE(passed_on("OTEL_EXPORTER_OTLP_ENDPOINT", ""));
    EXPECT_TRUE(passed_on("MLFLOW_TRACKING_TOKEN", R"("mlflow_url":"https://mlflow.our.org:443/sub")"));
    for (const char* foreign :
         {"", R"("mlflow_url":"https://mlflow.their.org")", R"("mlflow_url":"http://mlflow.our.org")",
          R"("mlflow_url":"https://mlflow.our.org:8443")"}) {
        EXPECT_FALSE(passed_on("MLFLOW_TRACKING_TOKEN", foreign)) << foreign;
    }
    EXPECT_TRUE(passed_on("OTEL_EXPORTER_OTLP_HEADERS", ""));
    EXPECT_TRUE(passed_on("OTEL_EXPORTER_OTLP_HEADERS", R"("otlp_url":"http://collector:4318")"));
    EXPECT_FALSE(passed_on("OTEL_EXPORTER_OTLP_HEADERS", R"("otlp_url":"http://elsewhere:4318")"));
    for (const auto& [name, value] : variables) {
        ::unsetenv(name);
    }
}

TEST(WorkerEnvironment, SpinsBrieflyAndRepeatsItsBitsUnlessTheUserChose) {
    for (const char* name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "CUBLAS_WORKSPACE_CONFIG"}) {
        ::unsetenv(name);
    }
    EXPECT_THAT(worker_environment(), ElementsAre("GOMP_SPINCOUNT=1000", "CUBLAS_WORKSPACE_CONFIG=:4096:8"));
    ::setenv("GOMP_SPINCOUNT", "100", 1);
    EXPECT_THAT(worker_environment(), ElementsAre("CUBLAS_WORKSPACE_CONFIG=:4096:8"));
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
    EXPECT_TRUE(worker_environment().empty());
    ::unsetenv("GOMP_SPINCOUNT");
    ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
}

}  // namespace
}  // namespace distilld
