package contend;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Takes one lock again and again, and says when it had it.
 *
 * <p>Arguments: kind (lock, fenced, red), name, key, time to run in ms, then the servers as
 * redis://host:port. What it prints is in the words of ../worker: {"Ready":true}, after a line on standard
 * input what it believed, then {"Done":true}. Times are System.nanoTime, which on Linux is CLOCK_MONOTONIC
 * and so the clock of all processes of the machine. The end of standard input is the end of this process.
 */
public final class Contend {
    private Contend() {}

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // whatever a library prints
        String kind = args[0];
        String name = args[1];
        String key = args[2];
        long run = Long.parseLong(args[3]) * 1_000_000;
        long hold = 1_000_000;
        long pause = 2_000_000;

        List<RedissonClient> clients = new ArrayList<>();
        for (int i = 4; i < args.length; i++) {
            Config config = new Config().setThreads(4).setNettyThreads(4);
            config.useSingleServer().setAddress(args[i]).setConnectionMinimumIdleSize(2).setConnectionPoolSize(8);
            clients.add(Redisson.create(config));
        }
        RFencedLock fenced = kind.equals("fenced") ? clients.get(0).getFencedLock(key) : null;
        RLock lock = fenced;
        if (kind.equals("lock")) {
            lock = clients.get(0).getLock(key);
        } else if (kind.equals("red")) {
            lock = redLock(clients, key);
        }

        // The scripts are loaded and the classes too, on a lock that nobody else wants.
        String own = key + ":warm:" + name;
        RLock warm = kind.equals("red") ? redLock(clients, own)
                : fenced != null ? clients.get(0).getFencedLock(own) : clients.get(0).getLock(own);
        for (int i = 0; i < 200; i++) {
            warm.lock();
            warm.unlock();
        }

        out.println("{\"Ready\":true}");
        out.flush();
        if (System.in.read() < 0) {
            Runtime.getRuntime().halt(3);
        }
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException e) {
                // the same
            }
            Runtime.getRuntime().halt(done ? 0 : 3);
        });
        watch.setDaemon(true);
        watch.start();

        long n = 0;
        for (long end = System.nanoTime() + run; ; n++) {
            long asked = System.nanoTime();
            if (asked >= end) {
                break;
            }
            long token = 0;
            if (fenced != null) {
                token = fenced.lockAndGetToken();
            } else {
                lock.lock();
            }
            long from = System.nanoTime();
            LockSupport.parkNanos(hold);
            long to = System.nanoTime();
            lock.unlock();
            out.printf("{\"Lease\":\"%s/%d\",\"Token\":%d,\"Asked\":%d,\"From\":%d,\"To\":%d}%n", name, n, token, asked, from, to);
            out.flush();
            LockSupport.parkNanos(ThreadLocalRandom.current().nextLong(pause + 1));
        }
        for (RedissonClient c : clients) {
            c.shutdown();
        }
        done = true;
        out.println("{\"Done\":true}");
        out.flush();
        Thread.sleep(Long.MAX_VALUE);
    }

    private static volatile boolean done;

    @SuppressWarnings("deprecation") // that it is deprecated is why it is asked for
    private static RLock redLock(List<RedissonClient> clients, String key) {
        RLock[] locks = new RLock[clients.size()];
        for (int i = 0; i < locks.length; i++) {
            locks[i] = clients.get(i).getLock(key);
        }
        return new RedissonRedLock(locks);
    }
}
