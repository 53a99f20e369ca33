#include "api/job_spec_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>

#include "api/problem.hpp"
#include "api/spec_overrides.hpp"

namespace distilld::api {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMinimal = R"({
    "student": {"model": "models/tiny"},
    "teacher": {"endpoints": ["http://127.0.0.1:8000"]},
    "dataset": {"train": "train.jsonl", "sequence_length": 64},
    "training": {"max_steps": 10},
    "output": "out"
})";

/// The minimal spec with some fields set; the value null removes one.
std::string with(const std::vector<Override>& changes) {
    auto text = apply_overrides(kMinimal, changes);
    if (!text) {
        throw std::runtime_error(text.error().message);
    }
    return *text;
}

std::vector<std::string> found(const std::string& text) {
    std::vector<std::string> result;
    const auto parsed = parse_job_spec(text);
    if (parsed) {
        return result;
    }
    for (const auto& violation : parsed.error().violations) {
        EXPECT_FALSE(violation.detail.empty());
        result.push_back(violation.pointer + " " + violation.code);
    }
    return result;
}

TEST(JobSpecJson, FillsInDefaults) {
    const auto parsed = parse_job_spec(kMinimal);
    ASSERT_TRUE(parsed) << describe(parsed.error());
    EXPECT_EQ(parsed->name, "job");
    EXPECT_EQ(parsed->student.model, "models/tiny");
    EXPECT_EQ(parsed->student.init, StudentInit::pretrained);
    EXPECT_EQ(parsed->student.dtype, Dtype::auto_select);
    EXPECT_EQ(parsed->student.device, "auto");
    ASSERT_TRUE(parsed->teacher());
    EXPECT_EQ(parsed->teacher()->protocol, TeacherProtocol::kserve);
    EXPECT_EQ(parsed->teacher()->model, "teacher");
    EXPECT_FALSE(parsed->teacher()->max_concurrent.automatic);
    EXPECT_EQ(parsed->teacher()->max_concurrent.limit, 8U);
    EXPECT_EQ(parsed->teacher()->timeout_secs, 60.0);
    EXPECT_EQ(parsed->teacher()->top_k, 0U);
    EXPECT_EQ(parsed->dataset.sequence_length, 64U);
    EXPECT_EQ(parsed->dataset.packing, Packing::joined);
    EXPECT_EQ(parsed->training.max_steps, 10U);
    EXPECT_FALSE(parsed->training.epochs);
    EXPECT_EQ(parsed->training.kd_ratio, 1.0);
    EXPECT_EQ(parsed->training.seed, 42U);
    EXPECT_EQ(parsed->checkpoint.keep, 2U);
}

TEST(JobSpecJson, ReadsEveryField) {
    const auto parsed = parse_job_spec(R"({
        "name": "my job 1",
        "student": {"model": "m", "init": "random", "config": {"hidden_size": 8}, "dtype": "bf16",
                    "device": "cuda:1"},
        "teacher": {"endpoints": ["https://a.example/x", "http://[::1]:9"], "protocol": "seed", "model": "big",
                    "max_concurrent": "auto", "window": 12, "window_bytes": 4096, "timeout_secs": 0.5, "top_k": 16,
                    "api_key_env": "DISTILLD_KEY_TEACHER", "ca_file": "ca.pem", "max_retries": 0, "hedge": false},
        "dataset": {"train": "t", "eval": "e", "sequence_length": 9, "packing": false},
        "training": {"parallel": false, "overlap_optimizer": false, "batch_size": "auto", "micro_batches": 3,
                     "epochs": 1.5, "learning_rate": 0, "lr_scheduler_type": "cosine", "warmup_steps": 2,
                     "weight_decay": 0.1, "max_grad_norm": 0, "adam_beta1": 0.8, "adam_beta2": 0.95,
                     "adam_epsilon": 1e-6, "temperature": 2, "kd_ratio": 0.25, "beta": 0,
                     "seed": 18446744073709551615, "threads": 2, "logging_steps": 5, "eval_steps": 7},
        "checkpoint": {"every_steps": 11, "keep": 4, "dir": "cp"},
        "output": "o"})");
    ASSERT_TRUE(parsed) << describe(parsed.error());
    EXPECT_EQ(parsed->name, "my job 1");
    EXPECT_EQ(parsed->student.init, StudentInit::random);
    EXPECT_EQ(parsed->student.config_json, R"({"hidden_size":8})");
    EXPECT_EQ(parsed->student.dtype, Dtype::bf16);
    EXPECT_EQ(parsed->student.device, "cuda:1");
    const auto& teacher = *parsed->teacher();
    EXPECT_THAT(teacher.endpoints, ::testing::ElementsAre("https://a.example/x", "http://[::1]:9"));
    EXPECT_EQ(teacher.protocol, TeacherProtocol::seed);
    EXPECT_EQ(teacher.model, "big");
    EXPECT_TRUE(teacher.max_concurrent.automatic);
    EXPECT_EQ(teacher.window, 12U);
    EXPECT_EQ(teacher.window_bytes, 4096U);
    EXPECT_EQ(teacher.timeout_secs, 0.5);
    EXPECT_EQ(teacher.top_k, 16U);
    EXPECT_EQ(teacher.api_key_env, "DISTILLD_KEY_TEACHER");
    EXPECT_EQ(teacher.ca_file, "ca.pem");
    EXPECT_EQ(teacher.max_retries, 0U);
    EXPECT_FALSE(teacher.hedge);
    EXPECT_EQ(parsed->dataset.eval, std::vector<std::string>{"e"});
    EXPECT_EQ(parsed->dataset.packing, Packing::off);
    const auto& training = parsed->training;
    EXPECT_FALSE(training.parallel);
    EXPECT_FALSE(training.overlap_optimizer);
    EXPECT_TRUE(training.batch_size_auto);
    EXPECT_EQ(training.micro_batches, 3U);
    EXPECT_EQ(training.epochs, 1.5);
    EXPECT_EQ(training.learning_rate, 0.0);
    EXPECT_EQ(training.lr_scheduler_type, LrScheduler::cosine);
    EXPECT_EQ(training.warmup_steps, 2U);
    EXPECT_EQ(training.weight_decay, 0.1);
    EXPECT_EQ(training.max_grad_norm, 0.0);
    EXPECT_EQ(training.adam_beta1, 0.8);
    EXPECT_EQ(training.adam_beta2, 0.95);
    EXPECT_EQ(training.adam_epsilon, 1e-6);
    EXPECT_EQ(training.temperature, 2.0);
    EXPECT_EQ(training.kd_ratio, 0.25);
    EXPECT_EQ(training.seed, 18446744073709551615ULL);
    EXPECT_EQ(training.threads, 2U);
    EXPECT_EQ(training.logging_steps, 5U);
    EXPECT_EQ(training.eval_steps, 7U);
    EXPECT_EQ(parsed->checkpoint.every_steps, 11U);
    EXPECT_EQ(parsed->checkpoint.keep, 4U);
    EXPECT_EQ(parsed->checkpoint.dir, "cp");

    // Written and read again it is the same.
    const auto again = parse_job_spec(to_json(*parsed));
    ASSERT_TRUE(again) << describe(again.error());
    EXPECT_EQ(to_json(*again), to_json(*parsed));
    EXPECT_EQ(again->training.seed, training.seed);
    EXPECT_EQ(again->student.config_json, parsed->student.config_json);
    EXPECT_EQ(again->teacher()->endpoints, teacher.endpoints);
    EXPECT_EQ(again->training.adam_beta2, training.adam_beta2);
}

constexpr const char* kGenerate = R"({"kind": "generate", "dataset": {"train": "d.jsonl", "sequence_length": 8},
    "teacher": {"endpoints": ["http://127.0.0.1:8000"], "store": "answers"}})";

TEST(JobSpecJson, AGenerateJobTakesATeacherAndADatasetAndNoMore) {
    const auto parsed = parse_job_spec(kGenerate);
    ASSERT_TRUE(parsed) << describe(parsed.error());
    EXPECT_EQ(parsed->kind, JobKind::generate);
    EXPECT_EQ(parsed->output, "answers") << "where it writes";
    EXPECT_EQ(parsed->training.batch_size, 8U) << "rows of a request";
    const auto again = parse_job_spec(to_json(*parsed));
    ASSERT_TRUE(again) << describe(again.error());
    EXPECT_EQ(to_json(*again), to_json(*parsed));
    std::string counted = kGenerate;
    counted.insert(1, R"("metrics": {"jsonl_file": "steps.jsonl"}, )");
    const auto refused = parse_job_spec(counted);
    ASSERT_FALSE(refused) << "it has no steps";
    EXPECT_THAT(describe(refused.error()), ::testing::HasSubstr("/metrics/jsonl_file: receives the metrics of"));
    const auto none = parse_job_spec(R"({"kind": "generate", "dataset": {"train": "d", "sequence_length": 8}})");
    ASSERT_FALSE(none);
    EXPECT_THAT(describe(none.error()), ::testing::HasSubstr("/teacher: teacher is required"));
    const auto nobody = parse_job_spec(R"({"teacher": {"endpoints": []}})");
    ASSERT_FALSE(nobody);
    EXPECT_THAT(describe(nobody.error()), ::testing::HasSubstr("/teacher/endpoints: must not be empty: give at least"));
    const auto bare = parse_job_spec(R"({"kind": "generate", "teacher": {}})");
    ASSERT_FALSE(bare);
    EXPECT_THAT(describe(bare.error()), ::testing::HasSubstr("/teacher/endpoints: endpoints is required"));
    EXPECT_THAT(describe(bare.error()), ::testing::HasSubstr("such as [\"http://127.0.0.1:8600\"]"));
    EXPECT_THAT(describe(bare.error()), ::testing::HasSubstr("/teacher/store: store is required"));
    EXPECT_THAT(describe(bare.error()), ::testing::HasSubstr("/dataset: dataset is required"));
    EXPECT_THAT(describe(bare.error()), ::testing::Not(::testing::HasSubstr("/student")));
    EXPECT_THAT(describe(bare.error()), ::testing::Not(::testing::HasSubstr("/output")));
}

TEST(JobSpecJson, AnswersComeFromEndpointsOrAStore) {
    const auto stored = parse_job_spec(with({{"/teacher", R"({"store": "answers"})"}}));
    ASSERT_TRUE(stored) << describe(stored.error());
    EXPECT_TRUE(stored->teacher()->endpoints.empty());
    EXPECT_EQ(stored->teacher()->cache, TeacherCache::readwrite);
    EXPECT_TRUE(parse_job_spec(to_json(*stored)));
    EXPECT_FALSE(parse_job_spec(with({{"/teacher", "{}"}})));
    const auto astray = parse_job_spec(with({{"/teacher/cache", R"("write")"}}));
    ASSERT_FALSE(astray);
    EXPECT_THAT(describe(astray.error()), ::testing::HasSubstr("/teacher/cache: needs a store"));
}

TEST(JobSpecJson, ATeacherInTheProcessStandsInPlaceOfEndpoints) {
    const auto local =
        parse_job_spec(with({{"/teacher", R"({"model_dir": "m", "placement": "shared", "threads": 3})"}}));
    ASSERT_TRUE(local) << describe(local.error());
    EXPECT_EQ(local->teacher()->model_dir, "m");
    EXPECT_EQ(local->teacher()->placement, TeacherPlacement::shared);
    EXPECT_EQ(local->teacher()->threads, 3U);
    EXPECT_TRUE(can_be_asked(*local->teacher()));
    const auto again = parse_job_spec(to_json(*local));
    ASSERT_TRUE(again) << describe(again.error());
    EXPECT_EQ(to_json(*again), to_json(*local));
    const auto none = parse_job_spec(with({{"/teacher", R"({"model_dir": ""})"}}));
    ASSERT_FALSE(none);
    EXPECT_THAT(describe(none.error()), ::testing::AllOf(::testing::HasSubstr("/teacher/endpoints: "),
                                                         ::testing::HasSubstr("model_dir, the folder of a model"),
                                                         ::testing::HasSubstr("or store, a folder of stored answers")));
    EXPECT_TRUE(parse_job_spec(
        R"({"kind": "generate", "teacher": {"model_dir": "m", "store": "s"}, "dataset": {"train": "d",
            "sequence_length": 8}})"));
}

TEST(JobSpecJson, RoundTripKeepsOddDoubles) {
    for (const auto* rate :
         {"0.1", "3e-4", "0.30000000000000004", "1.7976931348623157e-300", "0.0012345678901234567"}) {
        const auto parsed = parse_job_spec(with({{"/training/learning_rate", rate}}));
        ASSERT_TRUE(parsed);
        EXPECT_EQ(parsed->training.learning_rate, std::stod(rate));
        EXPECT_EQ(parse_job_spec(to_json(*parsed))->training.learning_rate, std::stod(rate));
    }
}

TEST(JobSpecJson, PlainTrainingHasNoKdRatio) {
    const auto parsed = parse_job_spec(with({{"/teacher", "null"}}));
    ASSERT_TRUE(parsed);
    EXPECT_FALSE(parsed->teacher());
    EXPECT_EQ(parsed->training.kd_ratio, 0.0);
    EXPECT_TRUE(parse_job_spec(to_json(*parsed)));
}

struct BadCase {
    const char* title;
    std::vector<Override> changes;
    std::vector<std::string> violations;  ///< "pointer code"
};

TEST(JobSpecJson, NamesWhatIsWrong) {
    const std::vector<BadCase> cases{
        {"unknown field", {{"/colour", "1"}}, {"/colour unknown_field"}},
        {"unknown nested field", {{"/training/batch_sise", "1"}}, {"/training/batch_sise unknown_field"}},
        {"unknown field with a slash", {{"/a~1b", "1"}}, {"/a~1b unknown_field"}},
        {"no student", {{"/student", "null"}}, {"/student required"}},
        {"no student model", {{"/student", "{}"}}, {"/student/model required"}},
        {"random without model", {{"/student", R"({"init":"random"})"}}, {"/student/model required"}},
        {"student is text", {{"/student", "\"m\""}}, {"/student wrong_type"}},
        {"config is a list", {{"/student/config", "[]"}}, {"/student/config wrong_type"}},
        {"unknown dtype", {{"/student/dtype", "fp16"}}, {"/student/dtype invalid_value"}},
        {"unknown init", {{"/student/init", "zero"}}, {"/student/init invalid_value"}},
        {"no endpoints", {{"/teacher", "{}"}}, {"/teacher/endpoints required"}},
        {"endpoints and a model", {{"/teacher/model_dir", "m"}}, {"/teacher/model_dir conflict"}},
        {"placement of endpoints", {{"/teacher/placement", "cpu"}}, {"/teacher/placement conflict"}},
        {"dtype of endpoints", {{"/teacher/dtype", "bf16"}}, {"/teacher/dtype conflict"}},
        {"threads of endpoints", {{"/teacher/threads", "2"}}, {"/teacher/threads conflict"}},
        {"unknown placement",
         {{"/teacher", R"({"model_dir": "m", "placement": "gpu"})"}},
         {"/teacher/placement invalid_value"}},
        {"empty endpoints", {{"/teacher/endpoints", "[]"}}, {"/teacher/endpoints invalid_value"}},
        {"endpoints is text", {{"/teacher/endpoints", "\"http://a\""}}, {"/teacher/endpoints wrong_type"}},
        {"endpoint is a number", {{"/teacher/endpoints/0", "7"}}, {"/teacher/endpoints/0 wrong_type"}},
        {"endpoint no URL", {{"/teacher/endpoints/-", "localhost:80 00"}}, {"/teacher/endpoints/1 invalid_value"}},
        {"endpoint ftp", {{"/teacher/endpoints/0", "ftp://a/b"}}, {"/teacher/endpoints/0 invalid_value"}},
        {"endpoint no host", {{"/teacher/endpoints/0", "http:///b"}}, {"/teacher/endpoints/0 invalid_value"}},
        {"endpoint bad port", {{"/teacher/endpoints/0", "http://a:99999"}}, {"/teacher/endpoints/0 invalid_value"}},
        {"endpoint password", {{"/teacher/endpoints/0", "http://u:p@a"}}, {"/teacher/endpoints/0 invalid_value"}},
        {"endpoint twice", {{"/teacher/endpoints/-", "http://127.0.0.1:8000"}}, {"/teacher/endpoints/1 conflict"}},
        {"unknown protocol", {{"/teacher/protocol", "grpc"}}, {"/teacher/protocol invalid_value"}},
        {"concurrency 0", {{"/teacher/max_concurrent", "0"}}, {"/teacher/max_concurrent out_of_range"}},
        {"concurrency 1025", {{"/teacher/max_concurrent", "1025"}}, {"/teacher/max_concurrent out_of_range"}},
        {"concurrency many", {{"/teacher/max_concurrent", "many"}}, {"/teacher/max_concurrent invalid_value"}},
        {"concurrency true", {{"/teacher/max_concurrent", "true"}}, {"/teacher/max_concurrent wrong_type"}},
        {"timeout 0", {{"/teacher/timeout_secs", "0"}}, {"/teacher/timeout_secs out_of_range"}},
        {"timeout text", {{"/teacher/timeout_secs", "\"5\""}}, {"/teacher/timeout_secs wrong_type"}},
        {"timeout of days", {{"/teacher/timeout_secs", "2d"}}, {"/teacher/timeout_secs wrong_type"}},
        {"timeout too long", {{"/teacher/timeout_secs", "25h"}}, {"/teacher/timeout_secs out_of_range"}},
        {"size in MB", {{"/teacher/window_bytes", "8MB"}}, {"/teacher/window_bytes wrong_type"}},
        {"size text", {{"/teacher/window_bytes", "\"4096\""}}, {"/teacher/window_bytes wrong_type"}},
        {"part of a byte", {{"/teacher/window_bytes", "0.3KiB"}}, {"/teacher/window_bytes wrong_type"}},
        {"size 0", {{"/teacher/window_bytes", "0KiB"}}, {"/teacher/window_bytes out_of_range"}},
        {"top_k negative", {{"/teacher/top_k", "-1"}}, {"/teacher/top_k out_of_range"}},
        {"key file above", {{"/teacher/api_key_file", "../key"}}, {"/teacher/api_key_file invalid_value"}},
        {"key file anywhere", {{"/teacher/api_key_file", "/etc/key"}}, {"/teacher/api_key_file invalid_value"}},
        {"two keys",
         {{"/teacher/api_key_env", "DISTILLD_KEY_A"}, {"/teacher/api_key_file", "key"}},
         {"/teacher/api_key_file conflict"}},
        {"key itself", {{"/teacher/api_key_env", "sk-123"}}, {"/teacher/api_key_env invalid_value"}},
        {"variable of the system", {{"/teacher/api_key_env", "HOME"}}, {"/teacher/api_key_env invalid_value"}},
        {"prefix alone", {{"/teacher/api_key_env", "DISTILLD_KEY_"}}, {"/teacher/api_key_env invalid_value"}},
        {"prefix within", {{"/teacher/api_key_env", "X_DISTILLD_KEY_A"}}, {"/teacher/api_key_env invalid_value"}},
        {"no dataset", {{"/dataset", "null"}}, {"/dataset required"}},
        {"empty dataset", {{"/dataset", "{}"}}, {"/dataset/train required", "/dataset/sequence_length required"}},
        {"empty train", {{"/dataset/train", "\"\""}}, {"/dataset/train invalid_value"}},
        {"sequence_length 0", {{"/dataset/sequence_length", "0"}}, {"/dataset/sequence_length out_of_range"}},
        {"sequence_length 1.5", {{"/dataset/sequence_length", "1.5"}}, {"/dataset/sequence_length wrong_type"}},
        {"sequence_length 1e300", {{"/dataset/sequence_length", "1e300"}}, {"/dataset/sequence_length out_of_range"}},
        {"packing text", {{"/dataset/packing", "yes"}}, {"/dataset/packing invalid_value"}},
        {"no training", {{"/training", "null"}}, {"/training required"}},
        {"no length", {{"/training/max_steps", "null"}}, {"/training/max_steps required"}},
        {"two lengths", {{"/training/epochs", "1"}}, {"/training/epochs conflict"}},
        {"max_steps 0", {{"/training/max_steps", "0"}}, {"/training/max_steps out_of_range"}},
        {"parallel 1", {{"/training/parallel", "1"}}, {"/training/parallel wrong_type"}},
        {"batch_size 0", {{"/training/batch_size", "0"}}, {"/training/batch_size out_of_range"}},
        {"batch_size big", {{"/training/batch_size", "big"}}, {"/training/batch_size invalid_value"}},
        {"micro_batches 0", {{"/training/micro_batches", "0"}}, {"/training/micro_batches out_of_range"}},
        {"negative rate", {{"/training/learning_rate", "-0.1"}}, {"/training/learning_rate out_of_range"}},
        {"unknown schedule", {{"/training/lr_scheduler_type", "cosin"}}, {"/training/lr_scheduler_type invalid_value"}},
        {"temperature 0", {{"/training/temperature", "0"}}, {"/training/temperature out_of_range"}},
        {"kd_ratio 1.01", {{"/training/kd_ratio", "1.01"}}, {"/training/kd_ratio out_of_range"}},
        {"kd_ratio without teacher",
         {{"/training/kd_ratio", "0.5"}, {"/teacher", "null"}},
         {"/training/kd_ratio conflict"}},
        {"beta 1.5", {{"/training/beta", "1.5"}}, {"/training/beta out_of_range"}},
        {"unknown optimizer", {{"/training/optimizer", "lion"}}, {"/training/optimizer invalid_value"}},
        {"momentum of adamw", {{"/training/sgd_momentum", "0.9"}}, {"/training/sgd_momentum conflict"}},
        {"momentum 1",
         {{"/training/sgd_momentum", "1"}, {"/training/optimizer", "sgd"}},
         {"/training/sgd_momentum out_of_range"}},
        {"two numbers of held-out rows",
         {{"/eval", R"({"max_rows":2})"}, {"/dataset/eval_rows", "3"}},
         {"/eval/max_rows conflict"}},
        {"samples without an evaluation",
         {{"/eval", R"({"sample_prompts":["a"]})"}},
         {"/eval/sample_prompts conflict"}},
        {"17 prompts",
         {{"/eval",
           R"({"sample_prompts":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]})"}},
         {"/eval/sample_prompts out_of_range"}},
        {"a bell in a prompt",
         {{"/eval", R"({"sample_prompts":["a\u0007"]})"}},
         {"/eval/sample_prompts/0 invalid_value"}},
        {"257 tokens", {{"/eval", R"({"sample_tokens":257})"}}, {"/eval/sample_tokens out_of_range"}},
        {"adam_beta2 1", {{"/training/adam_beta2", "1"}}, {"/training/adam_beta2 out_of_range"}},
        {"seed negative", {{"/training/seed", "-1"}}, {"/training/seed out_of_range"}},
        {"keep 0", {{"/checkpoint/keep", "0"}}, {"/checkpoint/keep out_of_range"}},
        {"checkpoint list", {{"/checkpoint", "[]"}}, {"/checkpoint wrong_type"}},
        {"no output", {{"/output", "null"}}, {"/output required"}},
        {"empty output", {{"/output", "\"\""}}, {"/output invalid_value"}},
        {"output is the model", {{"/output", "models/x/../tiny/"}}, {"/output conflict"}},
        {"bad name", {{"/name", "a/b"}}, {"/name invalid_value"}},
        {"empty name", {{"/name", "\"\""}}, {"/name invalid_value"}},
        {"name of 129", {{"/name", std::string(129, 'a')}}, {"/name out_of_range"}},
        {"control character", {{"/output", "\"a\\u0000b\""}}, {"/output invalid_value"}},
        {"null inside",
         {{"/dataset", R"({"train":"t","sequence_length":null})"}},
         {"/dataset/sequence_length wrong_type"}},
    };
    for (const auto& bad : cases) {
        EXPECT_EQ(found(with(bad.changes)), bad.violations) << bad.title;
    }
}

TEST(JobSpecJson, RefusesTextThatIsNoObject) {
    EXPECT_EQ(found(""), std::vector<std::string>{" malformed_json"});
    EXPECT_EQ(found("{\"name\":"), std::vector<std::string>{" malformed_json"});
    EXPECT_EQ(found("{} {}"), std::vector<std::string>{" malformed_json"});
    EXPECT_EQ(found("{\"name\": \"\xff\"}"), std::vector<std::string>{" malformed_json"});
    EXPECT_EQ(found("[]"), std::vector<std::string>{" wrong_type"});
    EXPECT_EQ(found(std::string(100, '[') + std::string(100, ']')), std::vector<std::string>{" malformed_json"});
    EXPECT_EQ(found("\"" + std::string(kSpecSizeLimit, 'x') + "\""), std::vector<std::string>{" too_large"});
    const auto parsed = parse_job_spec("{\n  \"name\": nope\n}");
    ASSERT_FALSE(parsed);
    EXPECT_THAT(parsed.error().violations.front().detail, HasSubstr("line 2, column "));
}

TEST(JobSpecJson, RefusesKeysThatStandTwice) {
    std::string text = kMinimal;
    text.insert(text.find("\"max_steps\""), "\"max_steps\": 5, ");
    EXPECT_EQ(found(text), std::vector<std::string>{"/training/max_steps duplicate_key"});
    // The same key spelt with an escape, in an object within an array.
    auto twice = with({{"/student/config", R"({"list":[1,{"x":2}]})"}});
    twice.replace(twice.find("{\"x\":2}"), 7, "{\"x\":2,\"\\u0078\":3}");
    EXPECT_EQ(found(twice), std::vector<std::string>{"/student/config/list/1/x duplicate_key"});
}

TEST(JobSpecJson, ListsEverythingAtOnce) {
    const auto violations = found(R"({
        "name": "", "student": {"dtype": "int8"}, "teacher": {"endpoints": ["x", "http://ok"], "top_k": 1.5},
        "dataset": {"sequence_length": 0}, "training": {"beta": 2, "temperature": -1}, "extra": 1})");
    EXPECT_THAT(violations,
                ::testing::ElementsAre("/name invalid_value", "/student/dtype invalid_value", "/student/model required",
                                       "/teacher/endpoints/0 invalid_value", "/teacher/top_k wrong_type",
                                       "/dataset/train required", "/dataset/sequence_length out_of_range",
                                       "/training/max_steps required", "/training/temperature out_of_range",
                                       "/training/beta out_of_range", "/output required", "/extra unknown_field"));
}

TEST(JobSpecJson, F12ListsFiftyThingsAndCountsTheOthers) {
    std::string text = R"({"student":{"model":"m"},"dataset":{"train":"t","sequence_length":8},)"
                       R"("training":{"max_steps":1},"output":"o")";
    for (int i = 0; i < 50'000; ++i) {
        text += ",\"no_field_" + std::to_string(i) + "\":0";
    }
    const auto spec = parse_job_spec(text + "}");
    ASSERT_FALSE(spec);
    const auto described = describe(spec.error());
    EXPECT_EQ(std::count(described.begin(), described.end(), '\n'), 50);
    EXPECT_TRUE(described.ends_with("\nand 49950 more"));
    const auto problem = boost::json::parse(to_json(spec_problem(spec.error(), "/v1/jobs"))).as_object();
    EXPECT_EQ(problem.at("errors").as_array().size(), 50U);
    EXPECT_EQ(problem.at("more_errors").to_number<int>(), 49'950);
}

TEST(JobSpecJson, SuggestsTheFieldThatWasMeant) {
    const auto detail = [](const std::string& text) { return parse_job_spec(text).error().violations.front().detail; };
    EXPECT_THAT(detail(with({{"/training/learningrate", "1"}})), HasSubstr("did you mean \"learning_rate\"?"));
    EXPECT_THAT(detail(with({{"/learning_rate", "1"}})), HasSubstr("did you mean /training/learning_rate?"));
    EXPECT_THAT(detail(with({{"/training/lr_scheduler_type", "cosin"}})), HasSubstr("did you mean \"cosine\"?"));
    EXPECT_THAT(detail(with({{"/zebra", "1"}})), ::testing::Not(HasSubstr("did you mean")));
}

TEST(JobSpecJson, NeverEchoesWhatMayBeASecret) {
    EXPECT_THAT(describe(parse_job_spec(with({{"/teacher/api_key_env", "sk-secret"}})).error()),
                ::testing::Not(HasSubstr("sk-secret")));
    EXPECT_THAT(describe(parse_job_spec(with({{"/teacher/endpoints/0", "http://me:pass@a"}})).error()),
                ::testing::Not(HasSubstr("pass@")));
}

TEST(JobSpecJson, NumbersAreWrittenAsPeopleWriteThem) {
    const auto text = to_json(parse_job_spec(with({{"/training/learning_rate", "1e-3"}})).value());
    EXPECT_THAT(text, HasSubstr("\"learning_rate\":0.001,"));
    EXPECT_THAT(text, HasSubstr("\"timeout_secs\":60,"));
    EXPECT_THAT(text, HasSubstr("\"adam_epsilon\":1e-8,"));
    EXPECT_EQ(describe(parse_job_spec(with({{"/training/learning_rate", "-1e-3"}, {"/teacher/top_k", "1e6"}})).error()),
              "/teacher/top_k: 1000000 is outside 0 to 65536\n"
              "/training/learning_rate: -0.001 is out of range: it must be at least 0 and at most 100");
}

TEST(JobSpecJson, SizesAndDurationsMayHaveUnitsAndAreWrittenAsNumbers) {
    const auto parsed = parse_job_spec(with({{"/teacher/window_bytes", "1.5MiB"},
                                             {"/teacher/timeout_secs", "1.5m"},
                                             {"/teacher/max_retry_after_secs", "250ms"},
                                             {"/checkpoint/every_secs", "2h"}}));
    ASSERT_TRUE(parsed) << describe(parsed.error());
    EXPECT_EQ(parsed->teacher()->window_bytes, 1'572'864U);
    EXPECT_EQ(parsed->teacher()->timeout_secs, 90);
    EXPECT_EQ(parsed->teacher()->max_retry_after_secs, 0.25);
    EXPECT_EQ(parsed->checkpoint.every_secs, 7200);
    const auto text = to_json(*parsed);
    EXPECT_THAT(text, HasSubstr("\"window_bytes\":1572864,\"timeout_secs\":90,"));
    EXPECT_THAT(text, HasSubstr("\"every_secs\":7200,"));
    EXPECT_EQ(
        describe(parse_job_spec(with({{"/teacher/window_bytes", "8MB"}, {"/checkpoint/every_secs", "soon"}})).error()),
        "/teacher/window_bytes: a size (bytes, or a text such as \"8MiB\") is expected, not a string\n"
        "/checkpoint/every_secs: a duration (seconds, or a text such as \"500ms\", \"90s\", \"5m\") is expected, "
        "not a string");
}

TEST(JobSpecJson, WholeNumbersMayBeWrittenAsFloats) {
    const auto parsed = parse_job_spec(with({{"/training/max_steps", "1e3"}, {"/training/batch_size", "4.0"}}));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->training.max_steps, 1000U);
    EXPECT_EQ(parsed->training.batch_size, 4U);
}

}  // namespace
}  // namespace distilld::api
