// What `spec check` and a dry run find out, in the words of the run.
#include "server/estimate/job_inspection.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/estimate/job_estimate.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr const char* kConfig =
    R"({"model_type":"llama","vocab_size":257,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,)"
    R"("num_attention_heads":2,"max_position_embeddings":64})";

class JobInspectionTest : public ::testing::Test {
  protected:
    JobInspectionTest() {
        spec_.student.init = StudentInit::random;
        spec_.student.config_json = kConfig;
        spec_.dataset.sequence_length = 32;
        spec_.dataset.train = {folder_.write("train.jsonl", text(32 * 7)).string()};
        spec_.training.batch_size = 1;
        spec_.training.epochs = 1;
        spec_.output = (folder_ / "out").string();
    }

    /// A document that comes to so many tokens and the end of the text.
    static std::string text(std::size_t tokens) { return R"({"text":")" + std::string(tokens, 'x') + "\"}\n"; }

    /// "pointer: detail" of what is wrong.
    [[nodiscard]] std::vector<std::string> wrong() const {
        std::vector<std::string> found;
        for (const auto& one : judge_job(spec_).violations) {
            found.push_back(one.pointer + ": " + one.detail);
        }
        return found;
    }

    test::TemporaryFolder folder_;
    JobSpec spec_;
};

TEST_F(JobInspectionTest, FindsNothingWrongWithAGoodJobAndCountsItsRows) {
    const auto found = inspect_job(spec_);
    EXPECT_THAT(wrong(), IsEmpty());
    EXPECT_EQ(found.rows, 7U);
    EXPECT_THAT(found.not_checked, IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(spec_.output)) << "it writes nothing";
}

TEST_F(JobInspectionTest, ReadsTheConfigAsTheRunDoes) {
    spec_.student.config_json = R"({"model_type":"llamb"})";
    EXPECT_THAT(wrong(), ElementsAre(HasSubstr("/student/config/model_type: is \"llamb\"")));
    spec_.student.config_json =
        R"({"model_type":"llama","vocab_size":257,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,)"
        R"("num_attention_heads":2,"rope_scaling":{"rope_type":"spiral","factor":2}})";
    EXPECT_THAT(wrong(), ElementsAre(HasSubstr("spiral")));
    spec_.student.config_json = kConfig;
    spec_.dataset.sequence_length = 4096;
    EXPECT_THAT(wrong(),
                Contains("/dataset/sequence_length: 4096 exceeds the student's max_position_embeddings of 64"));
}

TEST_F(JobInspectionTest, ReadsTheBeginningOfTheData) {
    folder_.write("train.jsonl", text(100) + R"({"messages":[{"role":"user","content":"Hi"}]})" + "\n");
    EXPECT_THAT(wrong(), ElementsAre(HasSubstr("train.jsonl:2: is a conversation")));
    folder_.write("train.jsonl", "");
    EXPECT_THAT(wrong(), ElementsAre(HasSubstr("/dataset/train: ")));
    folder_.write("train.jsonl", text(100) + "{\"text\":\n");
    EXPECT_THAT(wrong(), ElementsAre(HasSubstr("train.jsonl:2: ")));
    folder_.write("train.jsonl", text(100));
    spec_.dataset.eval = {folder_.write("eval.jsonl", "[]\n").string()};
    EXPECT_THAT(wrong(), ElementsAre(HasSubstr("/dataset/eval: ")));
}

TEST_F(JobInspectionTest, SaysWhatOfTheDataItHasNotRead) {
    std::string lines;
    while (lines.size() < 3 * kMaxInspectedData) {
        lines += text(1000);
    }
    folder_.write("train.jsonl", lines + "no JSON\n");
    const auto judged = judge_job(spec_);
    EXPECT_THAT(judged.violations, IsEmpty());
    EXPECT_THAT(judged.not_checked, ElementsAre("dataset.train after its first 4 MiB"));
    EXPECT_EQ(judged.estimate.steps, std::nullopt);
}

TEST_F(JobInspectionTest, LooksForATokenizer) {
    spec_.student.tokenizer = folder_.path().string();
    EXPECT_THAT(wrong(), ElementsAre(HasSubstr("/student/tokenizer: " + folder_.path().string())));
    spec_.student.tokenizer.clear();
    spec_.student.config_json =
        R"({"model_type":"llama","vocab_size":999,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,)"
        R"("num_attention_heads":2})";
    EXPECT_THAT(wrong(), ElementsAre(HasSubstr("vocabulary of 999 is not that of the byte tokenizer")));
}

TEST_F(JobInspectionTest, ReadsTheDataInTheTokensOfTheTeacherToo) {
    TeacherSpec& teacher = spec_.teachers[""];
    teacher.endpoints = {"http://127.0.0.1:1"};
    teacher.tokenizer = (folder_ / "teacher").string();
    teacher.top_k = 8;
    spec_.dataset.packing = Packing::off;
    EXPECT_THAT(wrong(), ElementsAre(HasSubstr("/teacher/tokenizer: " + teacher.tokenizer)));
    std::filesystem::create_directory(teacher.tokenizer);
    folder_.write("teacher/tokenizer.json",
                  R"({"model": {"type": "BPE", "vocab": {"x": 0, "xx": 1}, "merges": ["x x"]}})");
    EXPECT_THAT(wrong(), IsEmpty());
    EXPECT_EQ(inspect_job(spec_).rows, 1U);
    folder_.write("train.jsonl", "{\"input_ids\": [1, 2]}\n");
    EXPECT_THAT(wrong(), ElementsAre(HasSubstr("train.jsonl:1: \"input_ids\" cannot be used with /teacher/tokenizer")));
}

TEST_F(JobInspectionTest, LeavesFoldersOfOthersAlone) {
    std::filesystem::create_directory(spec_.output);
    folder_.write("out/config.json", "{}");
    EXPECT_THAT(wrong(), ElementsAre(HasSubstr("out/config.json belongs to another model")));
    spec_.overwrite = true;
    EXPECT_THAT(wrong(), IsEmpty());
}

TEST_F(JobInspectionTest, KnowsTheModulesOfTheStudent) {
    spec_.student.lora.emplace().target_modules = {"mlp.up_proj", "layers.0.self_attn.q_proj"};
    EXPECT_THAT(wrong(), IsEmpty());
    spec_.student.lora->target_modules = {"q_proj", "c_attn"};
    EXPECT_THAT(wrong(), ElementsAre(StartsWith("/student/lora/target_modules: the student has no linear module "
                                                "\"c_attn\"; it has down_proj, ")));
    spec_.student.lora.reset();
    spec_.student.quantization = Quantization::ternary;
    spec_.student.quantize_modules = {"lm_head"};
    EXPECT_THAT(wrong(), ElementsAre(StartsWith("/student/quantize_modules: the student has no linear module ")));
}

TEST_F(JobInspectionTest, KnowsThatWeightsKeepTheirSizes) {
    std::filesystem::create_directory(folder_ / "model");
    folder_.write("model/config.json", kConfig);
    spec_.student.model = (folder_ / "model").string();
    spec_.student.config_json = R"({"vocab_size":260})";
    EXPECT_THAT(wrong(), IsEmpty()) << "of new weights";
    spec_.student.init = StudentInit::pretrained;
    EXPECT_THAT(wrong(), Contains("/student/config/vocab_size: is 260, but the weights in " + spec_.student.model +
                                  " have 257: leave it out, or set /student/init to \"random\" for new weights"));
    folder_.write("model/adapter_config.json", R"({"peft_type":"LORA","base_model_name_or_path":"base"})");
    spec_.student.config_json.reset();
    EXPECT_THAT(wrong(), Contains(HasSubstr("holds adapters: give student.lora")));
}

TEST_F(JobInspectionTest, AStoreIsNotBegunAmongOtherFiles) {
    folder_.write("config.json", "{}");
    spec_.teachers[""].store = folder_.path().string();
    const auto refused = ElementsAre(StartsWith("/teacher/store: " + spec_.teacher()->store + " is not a store: "));
    EXPECT_THAT(wrong(), refused);
    spec_.teacher()->endpoints = {"http://127.0.0.1:1"};
    EXPECT_THAT(wrong(), refused);
    spec_.teacher()->cache = TeacherCache::off;
    EXPECT_THAT(wrong(), IsEmpty()) << "it is neither read nor written";
    spec_.teacher()->cache = TeacherCache::readwrite;
    spec_.teacher()->store = (folder_ / "new").string();
    EXPECT_THAT(wrong(), IsEmpty());
}

TEST_F(JobInspectionTest, AsksAGenerateJobWhoReadsItsText) {
    spec_.kind = JobKind::generate;
    spec_.student = {};
    spec_.teachers[""].endpoints = {"http://127.0.0.1:1"};
    spec_.teacher()->store = (folder_ / "new").string();
    EXPECT_THAT(wrong(), ElementsAre(StartsWith("/student/tokenizer: neither it nor /student/model is given")));
    spec_.student.config_json = R"({"vocab_size":257})";
    EXPECT_THAT(wrong(), IsEmpty());
}

TEST_F(JobInspectionTest, KnowsWhichUrlsAProtocolCannotUse) {
    spec_.teachers[""];
    spec_.teacher()->endpoints = {"http://127.0.0.1:1/v2/elsewhere"};
    EXPECT_THAT(wrong(), ElementsAre(HasSubstr("/teacher/endpoints/0: ")));
    spec_.teacher()->endpoints = {"http://127.0.0.1:1"};
    EXPECT_THAT(wrong(), IsEmpty());
    EXPECT_THAT(inspect_job(spec_).not_checked, ElementsAre("teacher.endpoints, which are not asked"));
    spec_.teachers["math"] = *spec_.teacher();
    spec_.teachers["math"].endpoints = {"http://127.0.0.1:1/v2/elsewhere"};
    spec_.teachers.erase("");
    EXPECT_THAT(wrong(), Contains(HasSubstr("/teachers/math/endpoints/0: ")));
}

TEST_F(JobInspectionTest, CountsTheStepsOfTheWarmUp) {
    spec_.training.warmup_steps = 7;
    EXPECT_THAT(wrong(),
                ElementsAre(StartsWith("/training/warmup_steps: the warm-up of 7 steps does not end before the run, "
                                       "which has 7, so ")));
    spec_.training.warmup_steps = 6;
    EXPECT_THAT(wrong(), IsEmpty());
}

}  // namespace
}  // namespace distilld
