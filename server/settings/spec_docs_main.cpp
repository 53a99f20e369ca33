#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>

#include "api/spec_docs.hpp"
#include "base/files/files.hpp"
#include "server/settings/settings_print.hpp"

// Regenerates the fields of a job spec in docs/job-spec.md and api/openapi.yaml, and the settings in docs/settings.md.
// With --check it only compares.

namespace distilld {
namespace {

using Generator = std::function<Result<std::string>(std::string)>;

/// 0 if the file is up to date afterwards, else 1.
int bring_up_to_date(const std::string& root, const char* name, const char* table, const Generator& generator,
                     bool check) {
    const std::string file = root + "/" + name;
    std::ifstream stream(file, std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    if (!stream) {
        std::cerr << file << ": cannot be read\n";
        return 1;
    }
    const auto wanted = generator(text.str());
    if (!wanted) {
        std::cerr << file << ": " << wanted.error().message << "\n";
        return 1;
    }
    if (*wanted == text.str()) {
        return 0;
    }
    if (check) {
        std::cerr << file << " does not say what " << table << " says. Write it anew:\n"
                  << "    scripts/build.sh release distilld-spec-docs && build/release/bin/distilld-spec-docs .\n";
        return 1;
    }
    if (const auto written = write_file_atomically(file, *wanted); !written) {
        std::cerr << written.error().message << "\n";
        return 1;
    }
    std::cout << "wrote " << file << "\n";
    return 0;
}

}  // namespace
}  // namespace distilld

int main(int argc, char** argv) {
    using namespace distilld;
    const bool check = argc == 3 && std::string(argv[1]) == "--check";
    if (argc != 2 && !check) {
        std::cerr << "usage: distilld-spec-docs [--check] FOLDER_OF_THE_REPOSITORY\n";
        return 2;
    }
    constexpr const char* kFields = "api/spec_fields.cpp";
    const struct {
        const char* file;
        const char* table;
        Generator generator;
    } documents[] = {
        {"docs/job-spec.md", kFields,
         [](std::string text) { return api::with_field_tables(std::move(text), api::spec_table()); }},
        {"api/openapi.yaml", kFields,
         [](std::string text) { return api::with_job_spec_schema(std::move(text), api::spec_table()); }},
        {"docs/settings.md", "server/settings/", with_settings_tables},
    };
    int failed = 0;
    for (const auto& [file, table, generator] : documents) {
        failed |= bring_up_to_date(argv[argc - 1], file, table, generator, check);
    }
    return failed;
}
