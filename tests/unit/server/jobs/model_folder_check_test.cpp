#include "server/jobs/checks/model_folder_check.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

std::string defect_of(const StudentSpec& student) {
    const auto found = check_model_folder(student);
    if (found.violations.empty()) {
        return {};
    }
    EXPECT_EQ(found.violations.size(), 1U);
    EXPECT_EQ(found.violations[0].pointer, "/student/model");
    return found.violations[0].detail;
}

TEST(ModelFolderCheck, OpensWhatAJobWouldRead) {
    const test::TemporaryFolder folder;
    const auto write = [&](const std::string& name, const std::string& text) {
        std::ofstream(folder.path() / name) << text;
    };
    StudentSpec student;
    student.model = (folder.path() / "nothing").string();
    EXPECT_NE(defect_of(student).find("nothing is not a folder"), std::string::npos) << defect_of(student);
    student.model = folder.path().string();
    write("model.safetensors", "");
    EXPECT_NE(defect_of(student).find("config.json is not a file"), std::string::npos) << defect_of(student);
    ASSERT_EQ(::mkfifo((folder.path() / "config.json").c_str(), 0600), 0);
    EXPECT_NE(defect_of(student).find("config.json is not a file"), std::string::npos)
        << "and nobody waits for a writer";
    std::filesystem::remove(folder.path() / "config.json");
    write("config.json", "[1]");
    EXPECT_NE(defect_of(student).find("config.json is not a JSON object"), std::string::npos) << defect_of(student);
    write("config.json", R"({"model_type":"llama"})");
    EXPECT_EQ(defect_of(student), "");

    std::filesystem::remove(folder.path() / "model.safetensors");
    EXPECT_NE(defect_of(student).find("neither model.safetensors nor"), std::string::npos) << defect_of(student);
    student.init = StudentInit::random;
    EXPECT_EQ(defect_of(student), "") << "no weights are wanted";
    std::filesystem::remove(folder.path() / "config.json");
    student.config_json = "{}";
    EXPECT_EQ(defect_of(student), "") << "the spec has the configuration";
    student.model.clear();
    EXPECT_EQ(defect_of(student), "");
}

}  // namespace
}  // namespace distilld
