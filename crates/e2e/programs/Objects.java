import java.util.HashMap;
import java.util.Random;

/** A map of arrays of random content; reads and updates at random. */
public class Objects {
    public static void main(String[] arguments) {
        int count = Integer.parseInt(arguments[0]);
        Random random = new Random(8);
        HashMap<String, long[]> map = new HashMap<>();
        for (int at = 0; at < count; at++) {
            long[] body = new long[64];
            for (int k = 0; k < 32; k++) {
                body[k] = random.nextLong();
            }
            map.put("item " + at, body);
        }
        long sum = 0;
        for (int step = 0; step < count / 2; step++) {
            long[] body = map.get("item " + random.nextInt(count));
            sum = sum * 31 + body[step % 64];
            body[(step + 1) % 64] ^= sum;
        }
        for (int at = 0; at < count; at += 97) {
            for (long word : map.get("item " + at)) {
                sum = sum * 31 + word;
            }
        }
        System.out.println(map.size() + " " + sum);
    }
}
