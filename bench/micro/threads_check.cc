// SPDX-License-Identifier: Apache-2.0
// Proves what the rows of several threads say: that the time is not shorter than the work, and that
// `ops`, by which it is divided, is the number of operations that were done.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "thread_rows.h"

namespace {

struct Plain : bench::Policy {
    template <size_t N> static void *get() { return malloc(N); }
    template <size_t N> static void *zget() { return calloc(1, N); }
    static void *get_any(size_t size) { return malloc(size); }
    static void drop(void *p) { free(p); }
    template <size_t N> static void drop_of(void *p) { free(p); }
    static size_t usable(void *) { return 0; } // calls are counted here, not bytes
};
using Counting = bench::Counted<Plain>;

int failures = 0;

void expect(bool holds, const char *what, const std::string &row, double got, double wanted) {
    if (holds) return;
    fprintf(stderr, "threads_check: %s: %s: %.9g, not %.9g\n", row.c_str(), what, got, wanted);
    failures++;
}

// However the threads are scheduled, work of 2 ms is never timed as less.
void check_time() {
    constexpr double WORK_SECONDS = 0.002;
    for (unsigned threads : {1U, 2U, 4U, 8U}) {
        double least = 1e9;
        for (int round = 0; round < 40; round++) {
            double passed = bench::run_threads<Plain>(threads, [](unsigned) {
                for (double start = bench::wall_seconds();
                     bench::wall_seconds() - start < WORK_SECONDS;) {
                }
            });
            least = std::min(least, passed);
        }
        expect(least >= WORK_SECONDS, "seconds of work that takes longer",
               "run_threads/" + std::to_string(threads), least, WORK_SECONDS);
    }
}

// Checks each row when it ends.
class Reporter : public benchmark::BenchmarkReporter {
  public:
    // Allocations of one iteration that `ops` leaves out, for each row.
    std::map<std::string, double> beside;
    int rows = 0;

    bool ReportContext(const Context &) override { return true; }
    void ReportRuns(const std::vector<Run> &runs) override {
        for (const Run &run : runs) look(run);
    }

  private:
    void look(const Run &run) {
        std::string row = run.benchmark_name();
        row = row.substr(0, row.find("/iterations"));
        double iterations = static_cast<double>(run.iterations);
        double ops = run.counters.at("ops");
        double allocs = static_cast<double>(bench::counts.allocs.exchange(0));
        double wanted = iterations * (ops + beside.at(row));
        expect(allocs == wanted, "allocations", row, allocs, wanted);
        double op = run.real_accumulated_time / (iterations * ops);
        double told = run.counters.at("op");
        expect(std::abs(told - op) <= op * 1e-6, "seconds an operation", row, told, op);
        rows++;
    }
};

void add(Reporter &reporter, const std::string &row, void (*run)(bench::State &, unsigned),
         unsigned threads, double beside) {
    std::string name = row + "/" + std::to_string(threads);
    benchmark::RegisterBenchmark(name.c_str(), [=](bench::State &state) { run(state, threads); })
        ->UseManualTime()
        ->Iterations(2);
    reporter.beside[name] = beside;
}

} // namespace

int main(int argc, char **argv) {
    check_time();
    benchmark::Initialize(&argc, argv);
    Reporter reporter;
    for (unsigned threads : {1U, 2U, 4U, 8U}) {
        add(reporter, "scaling_pair", bench::scaling_pair<Counting>, threads, 0);
        add(reporter, "scaling_replace", bench::scaling_replace<Counting>, threads,
            static_cast<double>(bench::OWN) * threads); // the objects that it begins with
        add(reporter, "scaling_cross", bench::scaling_cross<Counting>, threads, 0);
    }
    auto passed = [](bench::State &state, unsigned) { bench::producer_consumer<Counting>(state); };
    auto crossed = [](bench::State &state, unsigned) { bench::cross_free<Counting>(state); };
    add(reporter, "producer_consumer", passed, 2, 0);
    add(reporter, "cross_free", crossed, 2,
        static_cast<double>(bench::CROSS * bench::CROSS_ROUNDS)); // `ops` are those of one thread
    benchmark::RunSpecifiedBenchmarks(&reporter);
    expect(reporter.rows == 14, "rows that ran", "all", reporter.rows, 14);
    return failures == 0 ? 0 : 1;
}
