#include "server/openai/exported_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.hpp"

namespace distilld::openai {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ExportedFiles, AreThoseOfTheModelAlone) {
    const test::TemporaryFolder folder;
    for (const auto* below : {"merged", "ternary", "checkpoints", "merged/config.json"}) {
        std::filesystem::create_directories(folder / below);
    }
    for (const auto* name : {"model.safetensors", "config.json", "merged/model.safetensors", "notes.txt", ".ssh",
                             "checkpoints/model.safetensors", "ternary/config.json"}) {
        std::ofstream(folder / name) << name;
    }
    std::filesystem::create_symlink("/etc/passwd", folder / "tokenizer.json");
    std::ofstream(folder / "distilld.json") << R"({"files":["config.json","model.safetensors","tokenizer.json",)"
                                            << R"("merged/model.safetensors","ternary/config.json"]})";
    std::ofstream(folder / "other.safetensors") << "of somebody else";
    api::Job job;
    job.id = "job-0123456789abcdef01234567";
    job.output = folder.path().string();
    EXPECT_THAT(exported_files(job), IsEmpty());
    job.state = api::JobState::succeeded;
    std::vector<std::string> names;
    for (const auto& file : exported_files(job)) {
        names.push_back(file.name);
        EXPECT_EQ(file.bytes, file.name.size());
        EXPECT_EQ(job_of_exported_file(file.id), job.id);
    }
    EXPECT_THAT(names,
                ElementsAre("config.json", "merged/model.safetensors", "model.safetensors", "ternary/config.json"));
    job.kind = JobKind::generate;
    EXPECT_THAT(exported_files(job), IsEmpty());
}

TEST(ExportedFiles, HaveIdsOfTheirOwn) {
    const std::string good = "file-0123456789abcdef01234567-0123456789abcdef";
    EXPECT_TRUE(job_of_exported_file(good));
    for (const auto& other :
         {std::string(), std::string("file-0123456789abcdef01234567"), good + "0", "x" + good.substr(1),
          good.substr(0, 29) + "+" + good.substr(30), good.substr(0, 6) + "/" + good.substr(7)}) {
        EXPECT_FALSE(job_of_exported_file(other)) << other;
    }
}

}  // namespace
}  // namespace distilld::openai
